"""Chooses what is explained, and by which method, from the model and the options."""

from collections.abc import Mapping

from model.contract import HeadInfo, ModelInfo
from service.echo import cut
from service.engine.engine import Engine
from service.tasks.embed import EmbedOptions, plan_encode
from service.tasks.errors import ENCODER, TABLE, OptionError
from service.tasks.explanations.faithfulness import Faithfulness
from service.tasks.explanations.gradient import STEPS, Baseline, IntegratedGradients
from service.tasks.explanations.head_effects import HeadEffects
from service.tasks.explanations.occlusion import Occlusion
from service.tasks.explanations.parts import InteractionParts, SumParts, why_no_parts
from service.tasks.explanations.plan import OF_VECTORS, ExplainOptions, ExplainPlan
from service.tasks.explanations.targets import (
    InteractionTarget,
    LabelTarget,
    SimilarityTarget,
    Target,
    TargetKind,
    TargetOption,
)
from service.tasks.heads import check_head, choose_from
from service.tasks.label import HEADS
from service.tasks.prompts import choose_task

# The most labels that an error names.
_LISTED = 20


def choose_target(options: ExplainOptions, engine: Engine, engines: Mapping[str, Engine]) -> Target:
    """Choose the score that is explained, and check that the model has it; raises OptionError.

    The error names those of the served `engines` that have such a score.
    """
    info = engine.info
    option = options.target or TargetOption(_own_kind(info.head))
    task = choose_task(info, options.task)
    if option.kind != "similarity":
        options.check_unused(f'the target "{option.kind}", which is not a similarity', *OF_VECTORS, "task")
        target = _label_target(option, engine, engines)
        if option.kind == "score":
            _check_pairs(options, option.kind)
        return target
    _check_pairs(options, option.kind)
    if info.head is not None and info.head.kind == "late_interaction":
        options.check_unused("a late-interaction model", *OF_VECTORS)
        return InteractionTarget(info.head.size or 0, task, info.head.interaction)
    chosen = EmbedOptions(pooling=options.pooling, dimensions=options.dimensions)
    return SimilarityTarget(plan_encode(chosen, info, task), options.function or info.similarity)


def _own_kind(head: HeadInfo | None) -> TargetKind:
    match head:
        case HeadInfo(kind="classification", labels=labels):
            return "score" if len(labels) == 1 else "label"
        case HeadInfo(kind="token_classification"):
            return "label"
        case _:
            return "similarity"


def _label_target(option: TargetOption, engine: Engine, engines: Mapping[str, Engine]) -> LabelTarget:
    """Check the label that is explained; raises OptionError."""
    info = engine.info
    if option.kind == "score":
        head = info.head
        if head is None or head.kind != "classification" or len(head.labels) != 1:
            rankers = [name for name, one in engines.items() if _own_kind(one.info.head) == "score"]
            others = f": {choose_from(rankers)}" if rankers else ""
            raise OptionError(
                lambda name: (
                    f'{name("target")} is "score", which only cross-encoders have, and the model '
                    f'"{engine.name}" is not one{others}.'
                ),
                option="target",
                kind="unsupported",
            )
    head = check_head(engine, engines, *HEADS, needs=f'the target "{option.kind}"')
    by_token = head.kind == "token_classification"
    if by_token and option.token is None:
        raise OptionError(
            lambda name: (
                f'The model "{engine.name}" labels tokens: set {name("target")} to {{"token": i}}, the '
                "position of one of them."
            ),
            option="target",
        )
    if option.token is not None and not by_token:
        raise OptionError(
            lambda name: (
                f'{name("target.token")} is {option.token}, but the model "{engine.name}" labels whole '
                "texts: leave it out."
            ),
            option="target.token",
        )
    if option.label is not None and option.label not in head.labels:
        raise _no_label(option.label, head, engine.name)
    return LabelTarget(head, info.default_task, option)


def _no_label(label: str, head: HeadInfo, model: str) -> OptionError:
    more = "" if len(head.labels) <= _LISTED else f" and {len(head.labels) - _LISTED} more"
    known = ", ".join(map(cut, head.labels[:_LISTED]))
    return OptionError(
        lambda name: (
            f'{name("target.label")} is "{cut(label)}", which is not a label of the model "{model}": choose '
            f"from {known}{more}."
        ),
        option="target.label",
        actual=label,
    )


def _check_pairs(options: ExplainOptions, kind: TargetKind) -> None:
    if any(isinstance(text, str) for text in options.inputs):
        raise OptionError(
            lambda name: (
                f'{name("inputs")} must be pairs to explain their {kind}, such as [["How old are you?", '
                '"What is your age?"]]: a list of two strings is two texts.'
            ),
            option="inputs",
        )


def plan_explanation(options: ExplainOptions, engine: Engine, target: Target) -> ExplainPlan:
    """Choose the method: parts where they are exact, occlusion elsewhere; raises OptionError."""
    _check_interventions(options)
    if options.method == "gradient":
        if not options.faithfulness:
            options.check_unused('the method "gradient", which leaves nothing out', "replacement")
        return _plan_gradient(options, engine, target)
    plan = _plan_other(options, engine, target)
    options.check_unused(f'the method "{plan.method}", which takes no steps', "steps")
    return plan


def _check_interventions(options: ExplainOptions) -> None:
    for number, change in enumerate(options.interventions or ()):
        if change.kind != "heads":
            option = f"interventions.{number}"
            raise OptionError(
                lambda name, option=option, kind=change.kind: (  # type: ignore[misc]
                    f'{name(option)} is of the kind "{kind}", whose positions would mean other tokens when '
                    'units are left out: explanations support only the kind "heads".'
                ),
                option=option,
            )
    if options.interventions and options.method == "gradient":
        raise OptionError(
            lambda name: (
                f'{name("method")} is "gradient", which does not support interventions: leave out '
                f'{name("interventions")}, or set {name("method")} to "occlusion".'
            ),
            option="interventions",
        )


def _plan_other(options: ExplainOptions, engine: Engine, target: Target) -> ExplainPlan:
    info = engine.info
    if options.method == "heads":
        options.check_unused('the method "heads", which leaves no unit out', "unit", "replacement")
        if options.faithfulness:
            raise OptionError(
                lambda name: (
                    f'{name("faithfulness")} measures units, but {name("method")} is "heads": leave one of '
                    "them out."
                ),
                option="faithfulness",
            )
        return _plan_heads(engine, target)
    why = _why_no_parts(options, info, target)
    if options.method == "parts" and why is not None:
        raise why
    if options.method == "occlusion" or why is not None:
        return Occlusion(target, _mask_token(options, engine, target))
    if not options.faithfulness:
        options.check_unused('the method "parts", which leaves nothing out', "replacement")
    if isinstance(target, InteractionTarget):
        return InteractionParts(target)
    if isinstance(target, SimilarityTarget):
        return SumParts(target, info.dense)
    raise TypeError("a logit has no parts")


def _why_no_parts(options: ExplainOptions, info: ModelInfo, target: Target) -> OptionError | None:
    """Say why a score has no parts; None if it has parts."""
    if isinstance(target, SimilarityTarget):
        modes = EmbedOptions(pooling=options.pooling).modes(info)
        return why_no_parts(options, info, modes, target.function)
    if isinstance(target, InteractionTarget):
        return _pooled(target, "parts") if target.interaction.pools else None
    return OptionError(
        lambda name: (
            f'{name("method")} is "parts", but a logit is not a sum over tokens: set it to "occlusion".'
        ),
        option="method",
        kind="unsupported",
    )


def _pooled(target: InteractionTarget, method: str) -> OptionError:
    """Make the error of a method that needs a vector for each token, for a model that pools these."""
    return OptionError(
        lambda name: (
            f'{name("method")} is "{method}", but this model merges the vectors of several tokens into '
            f'one, so {target.function} has no scores for single tokens: set {name("method")} to "occlusion".'
        ),
        option="method",
        kind="unsupported",
    )


def plan_faithfulness(options: ExplainOptions, engine: Engine, target: Target) -> Faithfulness | None:
    """Plan how to measure the faithfulness of an explanation, if that is asked for; raises OptionError."""
    return Faithfulness(target, _mask_token(options, engine, target)) if options.faithfulness else None


def _check_layers(engine: Engine, method: str) -> None:
    """Raise OptionError for a method that looks into layers if the model has none."""
    if not engine.info.layers:
        raise OptionError(
            lambda name: (
                f'{name("method")} is "{method}". {TABLE}: set {name("method")} to "parts" or '
                f'"occlusion", or {ENCODER}.'
            ),
            option="method",
            kind="unsupported",
        )


def _plan_heads(engine: Engine, target: Target) -> HeadEffects:
    info = engine.info
    _check_layers(engine, "heads")
    if "heads" not in info.interventions:
        raise OptionError(
            lambda name: (
                f'{name("method")} is "heads", but the model "{engine.name}" runs as an ONNX graph whose '
                "heads cannot be left out: export its weights again with this release, or serve them with "
                'PyTorch (HEADLIGHT_BACKEND="torch").'
            ),
            option="method",
            kind="unsupported",
        )
    if len(info.attention_layers) < info.layers:
        attending = ", ".join(map(str, info.attention_layers))
        raise OptionError(
            lambda name: (
                f'{name("method")} is "heads", which has a row for each layer, but only layers {attending} '
                f'of the model "{engine.name}" have attention: leave their heads out with interventions, or '
                f'set {name("method")} to "occlusion" or "gradient".'
            ),
            option="method",
            kind="unsupported",
        )
    return HeadEffects(target, info.layers, info.heads)


def _plan_gradient(options: ExplainOptions, engine: Engine, target: Target) -> IntegratedGradients:
    info = engine.info
    _check_layers(engine, "gradient")
    if info.backend != "torch":
        raise OptionError(
            lambda name: (
                f'{name("method")} is "gradient", but the model "{engine.name}" runs as an ONNX graph, '
                "which computes no gradients: serve its weights with PyTorch "
                f'(HEADLIGHT_BACKEND="torch"), or set {name("method")} to "occlusion".'
            ),
            option="method",
            kind="unsupported",
        )
    if not info.differentiable:
        raise OptionError(
            lambda name: (
                f'{name("method")} is "gradient", but every layer of the model "{engine.name}" reads the '
                f'embeddings, not only the first: set {name("method")} to "occlusion".'
            ),
            option="method",
            kind="unsupported",
        )
    if isinstance(target, InteractionTarget) and target.interaction.pools:
        raise _pooled(target, "gradient")
    baseline: Baseline = "mask" if info.mask_token is not None else "padding"
    token = info.mask_token if baseline == "mask" else info.padding_token
    if token is None:
        raise OptionError(
            lambda name: (
                f'{name("method")} is "gradient", which starts from mask or padding tokens, but the '
                f'tokenizer of the model "{engine.name}" has neither: set {name("method")} to "occlusion".'
            ),
            option="method",
            kind="unsupported",
        )
    return IntegratedGradients(target, token, baseline, options.steps or STEPS)


def _mask_token(options: ExplainOptions, engine: Engine, target: Target) -> int | None:
    """Return what replaces a token that is left out, None if it is removed; raises OptionError."""
    mask, asked = engine.info.mask_token, options.replacement
    if asked == "mask" and mask is None:
        raise OptionError(
            lambda name: (
                f'{name("replacement")} is "mask", but the tokenizer of the model "{engine.name}" has no '
                'mask token: set it to "remove".'
            ),
            option="replacement",
            kind="unsupported",
        )
    # Masks in both texts make pooled vectors alike, whatever the texts say.
    usual = "remove" if isinstance(target, SimilarityTarget) else "mask"
    removes = (asked or usual) == "remove" or mask is None
    if removes and isinstance(target, LabelTarget) and target.option.token is not None:
        raise OptionError(
            lambda name: (
                "Tokens cannot be removed when the label of one token is explained: set "
                f'{name("replacement")} to "mask", with a model whose tokenizer has a mask token.'
            ),
            option="replacement",
            kind="unsupported",
        )
    return None if removes else mask
