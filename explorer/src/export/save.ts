/** Hands files and texts over to the reader. */

/** Save a file, as a click on a link to it does. */
export function saveFile(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** A picture in SVG as a PNG of so many pixels, which says how wide it is on paper. */
export async function toPng(svg: string, width: number, height: number, inches: number): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (blob === null) {
    throw new Error(`The browser cannot draw ${canvas.width} × ${canvas.height} pixels: choose a smaller scale.`);
  }
  // The chunk `pHYs` stands behind the first, which ends at 33: pixels a metre, twice, and the unit.
  const chunk = new DataView(new ArrayBuffer(21));
  const perMetre = Math.round(width / inches / 0.0254);
  for (const [i, word] of [9, 0x70485973, perMetre, perMetre].entries()) chunk.setUint32(4 * i, word);
  chunk.setUint8(16, 1);
  let crc = -1;
  for (let i = 4; i < 17; i++) {
    crc ^= chunk.getUint8(i);
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  chunk.setUint32(17, ~crc);
  return new Blob([blob.slice(0, 33), chunk, blob.slice(33)], { type: blob.type });
}

/** Copy the text of a field. Pages over plain HTTP have no clipboard: there it is selected and copied. */
export async function copyFrom(field: HTMLTextAreaElement): Promise<void> {
  if (navigator.clipboard !== undefined) {
    await navigator.clipboard.writeText(field.value);
    return;
  }
  field.select();
  document.execCommand("copy");
}
