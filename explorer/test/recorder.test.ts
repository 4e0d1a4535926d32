import assert from "node:assert/strict";
import { test } from "node:test";
import { Recorder } from "../src/export/recorder.js";

function recorded(draw: (context: CanvasRenderingContext2D) => void): Recorder {
  const recorder = new Recorder({} as HTMLCanvasElement, "c0");
  draw(recorder.asContext());
  return recorder;
}

test("What is drawn becomes an element with the look that the context has", () => {
  const { parts, complete } = recorded((context) => {
    context.fillStyle = "#f00";
    context.globalAlpha = 0.5;
    context.translate(10, 20);
    context.fillRect(1, 2, 3, 4);
  });
  assert.equal(complete, true);
  assert.deepEqual(parts, [
    '<rect x="1" y="2" width="3" height="4" fill="#f00" opacity="0.5" transform="translate(10 20)"></rect>',
  ]);
});

test("A clip holds until the context is restored", () => {
  const { parts } = recorded((context) => {
    context.save();
    context.beginPath();
    context.rect(0, 0, 5, 5);
    context.clip();
    context.fillRect(0, 0, 9, 9);
    context.restore();
    context.fillRect(1, 1, 1, 1);
  });
  assert.match(parts[0]!, /^<clipPath id="c0-clip-0"><path d="M0 0h5v5h-5Z"/);
  assert.match(parts[1]!, /^<g clip-path="url\(#c0-clip-0\)"><rect/);
  assert.match(parts[2]!, /^<rect x="1"/);
});

test("As on a canvas, the first line of a path starts where it ends, and lines are counted", () => {
  const { parts, lines } = recorded((context) => {
    context.beginPath();
    context.lineTo(1, 1);
    context.lineTo(2, 1);
    context.stroke();
  });
  assert.match(parts[0]!, /d="M1 1L2 1"/);
  assert.equal(lines, 1);
});

test("What it does not know makes the drawing incomplete, and no error", () => {
  const { complete } = recorded((context) => context.ellipse(0, 0, 1, 2, 0, 0, 7));
  assert.equal(complete, false);
});
