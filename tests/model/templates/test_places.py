"""Chat templates put texts into the places where `transformers` puts them, or are refused."""

from typing import Any

import pytest

from model.errors import CheckpointError
from model.templates.places import parse_template
from tests.references.logit_score import FIXED, TEMPLATE

_ROLE = "messages | selectattr('role', 'eq', '{}')"
STRUCTURED = (
    f"{{% for message in {_ROLE.format('system')} %}}{{{{ message.content[0].text }}}}{{% endfor %}}\n"
    f"{{{{ ({_ROLE.format('query')} | first).content[0].text }}}}\n"
    f"{{{{ ({_ROLE.format('document')} | first).content[0].text | trim }}}}"
)
LOOP = """{%- set ns = namespace(system="Judge it") -%}
{%- for message in messages -%}
    {%- if message.role == "system" -%}
        {%- set ns.system = message.content -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}never{% endif %}
{%- for message in messages %}
    {%- if message.role == "system" %}{% continue %}{% endif %}
{{ bos_token }}{{ message.role }}: {{ message.content }}
{% endfor %}
{{- kind }} {{ ns.system }}
"""
WITHOUT_SYSTEM = """{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}
{{- messages[0].content }} {{ messages[1].content }}"""
IGNORED = "{{ messages[-1].content }}, {{ messages[-2].content }}"
VARIABLES = {"bos_token": "<s>", "kind": "<b>"}
TEXTS = [
    ("Find it", "a query", "a text"),
    ("{{ x }}", " who?\n", "\n\n it is\t"),
    ("I", "", ""),
    ("<b>&amp;", "é\U0001f642", "\ue000 query document {% if %}"),
]


def messages_of(instruction: str, query: str, text: str, *, structured: bool) -> list[dict[str, Any]]:
    roles = {"system": instruction or None, "query": query, "document": text}
    return [
        {"role": role, "content": [{"type": "text", "text": one}] if structured else one}
        for role, one in roles.items()
        if one is not None
    ]


@pytest.mark.parametrize(
    ("template", "takes"),
    [
        (TEMPLATE, True),
        (STRUCTURED, True),
        (LOOP, True),
        (FIXED, False),
        (WITHOUT_SYSTEM, False),
        (IGNORED, False),
    ],
    ids=["selected", "structured", "loop", "by number", "refuses the system", "ignores the system"],
)
def test_a_pair_is_rendered_as_transformers_does(template: str, *, takes: bool) -> None:
    """With and without an instruction; each text is found at its place."""
    from transformers.utils.chat_template_utils import render_jinja_template

    structured = template == STRUCTURED
    parsed = parse_template(template, VARIABLES, structured=structured)
    assert parsed.takes_prompt == takes
    for instruction, query, text in TEXTS:
        for given in ("", instruction) if takes else ("",):
            messages = messages_of(given, query, text, structured=structured)
            (expected,), _ = render_jinja_template([messages], chat_template=template, **VARIABLES)
            found = parsed.render(given, query, text)
            assert found.text == expected
            assert sorted(number for _, _, number, _ in found.spans) == [0, 1]
            for start, end, number, skipped in found.spans:
                assert found.text[start:end] == (query, text)[number][skipped : skipped + end - start]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ messages[0].content }}", "does not render messages with the role document, which hold the text"),
        (
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            "role query and document",
        ),
        ("{{ messages[0].content | upper }} {{ messages[1].content }}", "changes the texts of a pair"),
        ("{{ messages[0].content }} {{ messages[1].content[:40] }}", "changes the texts of a pair"),
        ("{{ messages[0].content }} {{ messages[1].content or 'none' }}", "changes the texts of a pair"),
        ("{{ messages[0].content }} {{ messages[1].content | e }}", "changes the texts of a pair"),
        (
            "{{ messages[0].content }} {{ messages[1].content }} {{ messages[1].content | length }}",
            "changes the",
        ),
        ("{{ messages[0].content", "cannot be read: "),
        (
            "{{ messages[0].content.__class__ }}{{ strftime_now('%Y') }}",
            "cannot be rendered for a query and a",
        ),
        ("{{ raise_exception('not a chat') }}", "cannot be rendered for a query and a document: "),
        ("{% for i in range(10) %}{% endfor %}", "cannot be rendered for a query and a document: "),
        ("{{ 'x' * 200000 }}{{ messages[0].content }}{{ messages[1].content }}", "makes 200"),
        ("x" * 100_001, "has 100001 characters; the limit is 100000"),
    ],
    ids=lambda one: one[-60:],
)
def test_another_template_is_refused(template: str, sentence: str) -> None:
    """Nothing of a folder decides about a request but where its texts stand."""
    with pytest.raises(CheckpointError) as refused:
        parse_template(template, {}, structured=False)
    assert sentence in str(refused.value)
