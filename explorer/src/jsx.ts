/** What elements are made of, which the build imports into every file. */

export { Fragment, h } from "preact";
