/** The colours of signed numbers, with the numbers: 0 in the middle. */

import { useRef } from "preact/hooks";
import { paintDiverging } from "../../drawing/diverging.js";
import { signedText } from "../../drawing/numbers.js";
import { useStore } from "../../layout/context.js";
import { useSignalEffect } from "../../state/signals.js";

const STEPS = 128;
/** Of the largest size, what stands half way between 0 and it. */
const HALF_WAY = { linear: 0.5, sqrt: 0.25, log: 0.01 } as const;

export function ColourBar({ most }: { most: number }) {
  const store = useStore();
  const canvas = useRef<HTMLCanvasElement>(null);
  useSignalEffect(() => {
    const places = Float32Array.from({ length: 2 * STEPS + 1 }, (_, i) => i / STEPS - 1);
    const image = new ImageData(places.length, 1);
    paintDiverging(places, image.data, 1, store.dark.value, "linear");
    canvas.current!.width = places.length;
    canvas.current!.height = 1;
    canvas.current!.getContext("2d")!.putImageData(image, 0, 0);
  });
  const half = HALF_WAY[store.fields.scale.value];
  return (
    <div class="colour-bar">
      <canvas
        ref={canvas}
        class="map"
        role="img"
        aria-label={`Colours from ${signedText(-most)}, blue, over 0, the ground of the page, to ${signedText(most)}, orange`}
      />
      <p aria-hidden="true">
        {[-1, -half, 0, half, 1].map((tick) => (
          <span key={tick}>{signedText(tick * most)}</span>
        ))}
      </p>
    </div>
  );
}
