import assert from "node:assert/strict";
import { test } from "node:test";
import { ablation, layerFields, overviewFields, type Subject } from "../src/data/requests.js";
import { effectsOf, explainQuestion, labelledToken, nothingToExplain, runQuestion, taskOf } from "../src/data/why.js";
import { signedLook } from "../src/drawing/diverging.js";
import { cellText, signedText } from "../src/drawing/numbers.js";

function subject(prediction: Subject["model"]["prediction"], pair: string | null = null): Subject {
  const model = { name: "m", layers: 3, heads: 4, max_length: 64, prediction } as Subject["model"];
  const weights = { weights: "probability", level: "token", special: "keep" } as const;
  return { model, text: "a", pair, prompt: "", ...weights, ablated: [] };
}

const encoder = subject(null, "b");
const classifier = subject({ kind: "classification", labels: ["x", "y"] });
const ranker = subject({ kind: "classification", labels: ["x"] }, "b");
const late = subject({ kind: "late_interaction" }, "b");
const asked = { method: "auto", unit: "word", label: null, labelled: 3 } as const;

test("A model is explained by what it is for", () => {
  assert.deepEqual(
    [encoder, classifier, ranker, late, subject({ kind: "token_classification", labels: [] })].map((one) =>
      taskOf(one.model),
    ),
    ["similarity", "label", "score", "similarity", "token"],
  );
  assert.match(nothingToExplain({ ...encoder, pair: null })!, /second text/);
  assert.equal(nothingToExplain(classifier), null);
});

test("Heads of one layer are one intervention, and only those that count are named", () => {
  const ablated = [
    [0, 2],
    [2, 1],
    [0, 3],
  ] as const;
  const first = { kind: "heads", layer: 0, heads: [2, 3] };
  const last = { kind: "heads", layer: 2, heads: [1] };
  assert.deepEqual(ablation({ ablated }), { interventions: [first, last] });
  assert.deepEqual(layerFields({ ...encoder, ablated }, 0).interventions, undefined);
  assert.deepEqual(layerFields({ ...encoder, ablated }, 2).interventions, [first]);
  assert.deepEqual(overviewFields({ ...encoder, ablated }, true).interventions, [first]);
});

test("Each kind of model is asked on the route that has its score, with prompts where they are read", () => {
  const without = { interventions: [{ kind: "heads", layer: 1, heads: [0] }] };
  assert.deepEqual(runQuestion(encoder, [[1, 0]]), {
    path: "/similarity",
    body: { source: "a", texts: ["b"], model: "m", prompt: "", ...without },
  });
  assert.deepEqual(runQuestion(classifier, []), { path: "/predict", body: { inputs: "a", model: "m" } });
  const body = { query: "a", texts: ["b"], model: "m" };
  assert.deepEqual(runQuestion(ranker, [], true), { path: "/rerank", body: { ...body, raw_scores: true } });
  assert.deepEqual(runQuestion(late, []), { path: "/rerank", body });
});

test("An explanation names what differs from the service's own choice", () => {
  assert.deepEqual(explainQuestion(encoder, asked).body, {
    inputs: [["a", "b"]],
    model: "m",
    prompt: "",
    unit: "word",
  });
  assert.deepEqual(explainQuestion(classifier, { ...asked, label: "y", method: "occlusion" }).body, {
    ...{ inputs: "a", model: "m", target: { label: "y" } },
    ...{ method: "occlusion", unit: "word" },
  });
  const token = subject({ kind: "token_classification", labels: [] });
  assert.deepEqual(explainQuestion(token, asked, true).body, {
    ...{ inputs: "a", model: "m", target: { token: 3 } },
    method: "heads",
  });
});

test("A unit's share is the sum of its cells, or its cell with one unit of the other text", () => {
  const parts = [
    [1, 2],
    [3, 4],
    [5, 6],
  ];
  const explanation = { method: "parts", score: 21, parts, units: { text: [], offsets: [], segment: [] } };
  assert.deepEqual(effectsOf(explanation, null, null), [3, 7, 11, 9, 12]);
  assert.deepEqual(effectsOf(explanation, 1, null), [3, 7, 11, 3, 4]);
  assert.deepEqual(effectsOf(explanation, null, 0), [1, 3, 5, 9, 12]);
});

test("The token that is explained at first has a label", () => {
  const special = [true, false, false, true];
  const answer = (...token_labels: string[]) => ({ data: [{ special, token_labels }] });
  assert.equal(labelledToken(answer("B", "O", "B", "B")), 2);
  assert.equal(labelledToken(answer("B", "O", "O", "B")), 1);
});

test("Signed numbers have their sign, and few characters in cells", () => {
  assert.deepEqual([0.25, -0.25, 0].map(signedText), ["+0.250", "−0.250", "0"]);
  assert.deepEqual(
    [0.0123, -0.5, 12.34].map((one) => cellText(one, one)),
    ["+.012", "−.500", "+12.3"],
  );
  assert.deepEqual(signedLook(0, 1, false, "sqrt"), { backgroundColor: "rgb(255,255,255)", color: "#000" });
});
