"""Opens a page of the API in Chromium, tries out each route, and prints what the browser saw, as JSON.

Run by the Python that has playwright: `python press_execute.py CHROMIUM URL PATH…`.
"""

import json
import sys

from playwright.sync_api import Page, sync_playwright

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PATIENCE_MS = 60_000


def press(page: Page, path: str) -> dict[str, object]:
    """Press "Try it out" and "Execute" of the operation at a path, as it is prefilled."""
    operation = page.locator(f".opblock:has([data-path='{path}'])")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    with page.expect_response(lambda response: path in response.url) as answered:
        operation.get_by_role("button", name="Execute").click()
    response = answered.value
    shown = operation.locator(".live-responses-table tr.response .response-col_status").first
    shown.wait_for()
    return {
        "url": response.url,
        "status": response.status,
        "shown": shown.inner_text().strip(),
        "body": response.json(),
    }


def main(chromium: str, address: str, *paths: str) -> None:
    """Print every address that was asked for, the errors of the page, and the answers by their paths."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        requested: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda told: errors.append(told.text) if told.type == "error" else None)
        page.goto(address)
        page.wait_for_selector(".opblock")
        answers = {path: press(page, path) for path in paths}
        browser.close()
    json.dump({"requested": requested, "errors": errors, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
