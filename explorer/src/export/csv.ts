/** Tables as text that spreadsheets and data frames read. */

/** Rows of texts and numbers, with all their digits; what is no number is empty. */
export function csvOf(rows: readonly (readonly (string | number)[])[]): string {
  const cell = (value: string | number): string => {
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    return /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}
