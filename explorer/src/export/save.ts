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

/** A picture in SVG as a PNG of so many pixels. */
export async function toPng(svg: string, width: number, height: number): Promise<Blob> {
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
  return blob;
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
