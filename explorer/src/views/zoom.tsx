/** Buttons that zoom; the keys do the same. */

/** What `zoom` gets for all that there is to see. */
export const FIT = 0;
const STEP = 1.5;
const FACTORS: Record<string, number> = { "+": STEP, "=": STEP, "-": 1 / STEP, "0": FIT };

interface ZoomProps {
  /** Enlarge by a factor, or FIT. */
  zoom(factor: number): void;
  /** What FIT shows. */
  readonly all: string;
}

export function Zoom({ zoom, all }: ZoomProps) {
  const button = (key: string, sign: string, label: string) => (
    <button type="button" aria-label={label} title={`${label} (${key})`} onClick={() => zoom(FACTORS[key]!)}>
      {sign}
    </button>
  );
  return (
    <fieldset class="zoom">
      <legend class="unseen">Zoom</legend>
      {button("+", "+", "Zoom in")}
      {button("-", "−", "Zoom out")}
      {button("0", "Fit", all)}
    </fieldset>
  );
}

/** Follow a key that zooms; returns whether it does. */
export function zoomKey(key: string, zoom: (factor: number) => void): boolean {
  const factor = FACTORS[key];
  if (factor !== undefined) zoom(factor);
  return factor !== undefined;
}
