/**
 * The client's errors.
 *
 * HeadlightError               the service refused or failed: the members of its problem document (RFC 9457)
 * ├── HeadlightConnectionError no complete response: connection refused or reset, unknown host, TLS, CORS
 * │   └── HeadlightTimeout     no complete response in time
 * └── InputsError              the inputs cannot be sent
 */

/** The inputs of one request of a call, from `start` up to but not including `stop`. */
export interface Rows {
  readonly start: number;
  readonly stop: number;
}

/** A problem document; the first three members are always there if the service wrote it. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  instance?: string;
  request_id?: string | null;
  field?: string;
  limit?: unknown;
  actual?: unknown;
  allowed?: unknown;
  errors?: { field: string; detail: string }[];
  [member: string]: unknown;
}

const QUOTED = 200; // characters of a response without a problem document that the message quotes
const PLACE = /\b(inputs|texts|token_ids|edges)\.(\d+)\b/g;
const OWN = "urn:headlight:";

/** The service refused or failed, or its response cannot be read; the message says what to change. */
export class HeadlightError extends Error {
  /** The HTTP status; null without a response. */
  readonly status: number | null;
  /** The whole problem document. */
  readonly document: Problem;
  /** When the response says to come back, in milliseconds. */
  readonly retryAfterMs: number | null;
  /** Which problem: `urn:headlight:too-many-inputs`. */
  readonly type: string;
  readonly title: string;
  readonly limit: unknown;
  readonly actual: unknown;
  readonly allowed: unknown;
  /** The id of the request in the service's log. */
  readonly requestId: string | null;
  /** What to change. Inputs are numbered from the start of the call. */
  detail: string;
  /** The invalid field, such as `inputs.17`. */
  field: string | null;
  /** The inputs of the request that failed, if the call took several. */
  rows: Rows | null = null;

  constructor(status: number | null, document: Problem, retryAfterMs: number | null = null, cause?: unknown) {
    super("", cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.status = status;
    this.document = document;
    this.retryAfterMs = retryAfterMs;
    this.type = String(document.type ?? "about:blank");
    this.title = String(document.title ?? "");
    this.detail = String(document.detail ?? "");
    this.field = document.field ?? null;
    this.limit = document.limit ?? null;
    this.actual = document.actual ?? null;
    this.allowed = document.allowed ?? null;
    this.requestId = document.request_id ?? null;
    this.message = told(this);
  }
}

// Functions, so that a page that sends no calls in parts need not have them.

/** Record which inputs the request had, and number those that it names as the call does. */
export function place(error: HeadlightError, rows: Rows): void {
  error.rows = rows;
  error.detail = countedFrom(rows.start, error.detail);
  error.field = error.field === null ? null : countedFrom(rows.start, error.field);
  const count = rows.stop - rows.start;
  error.message = `${told(error)} [${count === 1 ? `input ${rows.start}` : `inputs ${rows.start} to ${rows.stop - 1}`}]`;
}

/** Say `field` of inputs that the message names, which the caller gave under this name. */
export function rename(error: HeadlightError, field: string): void {
  const renamed = (text: string) => text.replace(PLACE, `${field}.$2`);
  error.detail = renamed(error.detail);
  error.field = error.field && renamed(error.field);
  error.message = renamed(error.message);
}

function told({ detail, title, status, type, requestId }: HeadlightError): string {
  const message = detail || title;
  if (status === null) return message;
  const kind = type === "about:blank" ? title : type.replace(OWN, "");
  const request = requestId === null ? "" : `, request ${requestId}`;
  return `${message} (${status} ${kind}${request})`;
}

/** No complete response from `url`; `cause` is the error of `fetch`. */
export class HeadlightConnectionError extends HeadlightError {
  constructor(
    readonly url: string,
    detail: string,
    cause?: unknown,
  ) {
    super(null, { title: "No response", detail }, null, cause);
  }
}

/** No complete response from `url` in time; the service may still be working on it. */
export class HeadlightTimeout extends HeadlightConnectionError {}

/** What is known of a request that got no complete response. */
export interface Failure {
  readonly url: string;
  /** What `fetch` threw. */
  readonly error: unknown;
  /** After how many milliseconds without a byte it was given up; null if it was not. */
  readonly lateMs: number | null;
  /** Whether a response had begun. */
  readonly begun: boolean;
}

/** Node's own timeouts, which ours may exceed. */
const LATE = new Set(["UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "UND_ERR_CONNECT_TIMEOUT"]);

/** Say what happened, and what to do. */
export function failureOf({ url, error, lateMs, begun }: Failure): HeadlightConnectionError {
  const cause = (error as { cause?: { code?: unknown; message?: unknown } }).cause;
  if (lateMs !== null || LATE.has(String(cause?.code))) {
    const within = lateMs === null ? "in time" : `for ${lateMs / 1000} s`;
    const help = "allow more with timeoutMs, or send fewer texts at a time";
    return new HeadlightTimeout(url, `${url} sent nothing ${within}: ${help}.`, error);
  }
  const reason = cause?.message || cause?.code || (error instanceof Error ? error.message : String(error));
  const detail = begun
    ? `The connection to ${url} broke before the response was complete: ${reason}.`
    : `${url} cannot be reached: ${reason}. Check the URL and that the service is running; ` +
      "client.waitUntilReady() waits for a service that is starting.";
  return new HeadlightConnectionError(url, detail, error);
}

/** The inputs cannot be sent; the message names the first invalid one. Nothing was sent. */
export class InputsError extends HeadlightError {
  constructor(detail: string, field: string) {
    super(null, { title: "The inputs cannot be sent", detail, field });
  }
}

/** The error of a response that is not a 200; one from a proxy has no problem document. */
export function refusal(status: number, headers: Headers, content: Uint8Array): HeadlightError {
  const text = new TextDecoder().decode(content);
  const wait = retryAfterMs(headers);
  try {
    const document: unknown = JSON.parse(text);
    if (isProblem(document)) return new HeadlightError(status, document, wait);
  } catch {
    // It is not JSON: quoted below.
  }
  return new HeadlightError(status, plain(headers, `HTTP ${status}`, text), wait);
}

/** The error of a 200 whose content is not valid. */
export function unreadable(headers: Headers, reason: unknown): HeadlightError {
  if (reason instanceof HeadlightError) return reason;
  const why = reason instanceof Error ? reason.message : String(reason);
  const detail = `The response (${headers.get("content-type") ?? "no media type"}) cannot be read: ${why}.`;
  return new HeadlightError(200, plain(headers, "Unreadable response", detail), null, reason);
}

export function isProblem(document: unknown): document is Problem {
  if (typeof document !== "object" || document === null) return false;
  return ["type", "title", "status"].every((member) => member in document);
}

/**
 * When to come back, in milliseconds from now; null if the headers do not say it. `retry-after-ms` is more exact than
 * `Retry-After` (RFC 9110 §10.2.3), which is whole seconds or a date. A date is compared with the response's own
 * `Date`, so that a wrong local clock does not matter.
 */
export function retryAfterMs(headers: Headers): number | null {
  const exact = (headers.get("retry-after-ms") ?? "").trim();
  if (/^\d+(\.\d+)?$/.test(exact)) return Number(exact);
  const value = (headers.get("retry-after") ?? "").trim();
  if (/^\d+$/.test(value)) return 1000 * Number(value);
  const until = Date.parse(value);
  if (Number.isNaN(until)) return null;
  const since = Date.parse(headers.get("date") ?? "");
  return Math.max(0, until - (Number.isNaN(since) ? Date.now() : since));
}

function plain(headers: Headers, title: string, text: string): Problem {
  const detail = text.length <= QUOTED ? text : `${text.slice(0, QUOTED)}…`;
  return { title, detail: detail.trim(), request_id: headers.get("x-request-id") };
}

function countedFrom(start: number, text: string): string {
  return text.replace(PLACE, (_, list: string, index: string) => `${list}.${Number(index) + start}`);
}
