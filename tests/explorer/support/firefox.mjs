/**
 * Firefox, steered over WebDriver BiDi: runs a line of JavaScript after the other from standard input, with `page` and
 * `browser`, and answers each with a line of JSON. Arguments: the folder of puppeteer-core, Firefox, and the folder that
 * downloads go to.
 */

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, executablePath, downloads] = process.argv.slice(2);
const puppeteer = createRequire(`${packages}/`)("puppeteer-core");
const browser = await puppeteer.launch({
  browser: "firefox",
  executablePath,
  headless: true,
  extraPrefsFirefox: {
    // What scroll bars take from the page is part of what is tested.
    "widget.gtk.overlay-scrollbars.enabled": false,
    "browser.download.folderList": 2,
    "browser.download.dir": downloads,
    "browser.download.alwaysOpenPanel": false,
    "browser.download.always_ask_before_handling_new_types": false,
    "browser.helperApps.neverAsk.saveToDisk": "image/svg+xml,text/html,image/png,application/octet-stream",
  },
});
const page = await browser.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
const AsyncFunction = (async () => {}).constructor;

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const value = await new AsyncFunction("browser", "page", "problems", JSON.parse(line))(browser, page, problems);
    answer = { value: value ?? null };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  console.log(JSON.stringify(answer));
}
await browser.close();
