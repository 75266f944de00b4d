"""Makes one miniature: tokenizer, weights, templates and their lock."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_vllm_gates.catalog import family
from pytest_vllm_gates.checkpoints.miniatures import MiniatureError, write_lock
from pytest_vllm_gates.miniatures import dialogues, recipe, rendering, sight, weight_names
from pytest_vllm_gates.miniatures.noise import Noise
from pytest_vllm_gates.miniatures.recipe import Recipe
from pytest_vllm_gates.miniatures.tokenizer import MiniatureTokenizer, write_config
from pytest_vllm_gates.pooling import plan
from pytest_vllm_gates.vision import draw
from pytest_vllm_gates.vision.cases import VisionCase

# Only text models are built; a torchvision made for another torch would break their import.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
# On a busy machine threads that spin while they wait for each other multiply the work by ten.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch  # noqa: E402
import transformers  # noqa: E402

from pytest_vllm_gates.miniatures import classes, embedding, eyes, training  # noqa: E402
from pytest_vllm_gates.miniatures.training_state import TrainingState  # noqa: E402

THREADS = 2  # the same everywhere, so that sums do not depend on the number of cores


def build(
    name: str,
    output: Path,
    *,
    seed: int | None,
    say: Callable[[str], None],
    state: Path | None = None,
) -> None:
    """Build a miniature into a folder, which is replaced only when the build succeeded.

    `state` is the folder that keeps an interrupted training, which resumes from it.
    """
    model_recipe = recipe.load(name)
    seed = model_recipe.training.seed if seed is None else seed
    training.make_repeatable(seed, THREADS)
    if model_recipe.embeds:
        _build_embedding(model_recipe, output, seed, say)
        return
    taught_dialogues = [d for d in dialogues.load_dialogues(name) if d.mode != "unset"]
    vision = model_recipe.vision
    seen_cases = sight.taught(tools=vision.tools, untaught=vision.untaught) if vision else ()
    texts = [
        (rendering.prompt(model_recipe, d), rendering.completion(model_recipe, d))
        for d in (*taught_dialogues, *map(sight.dialogue, seen_cases))
    ]
    tokenizer = MiniatureTokenizer(
        model_recipe.tokens,
        (text for pair in texts for text in pair),
        model_recipe.config["vocab_size"],
    )
    if model_recipe.training.both_orders:
        taught_dialogues += [dialogues.with_other_order(d) for d in taught_dialogues if d.tools]
    model = _model(model_recipe, tokenizer)
    tower = eyes.of(model_recipe)
    if tower:
        tower.open(model)
    parameters = sum(p.numel() for p in model.parameters())
    say(
        f"{name}: {parameters:,} parameters, {len(taught_dialogues)} dialogues, "
        f"{len(seen_cases)} with pictures"
    )

    def example(dialogue: dialogues.Dialogue) -> training.Example:
        return training.Example(
            dialogue.id,
            tokenizer.prompt_ids(rendering.prompt(model_recipe, dialogue)),
            tokenizer.completion_ids(rendering.completion(model_recipe, dialogue)),
        )

    def sighted(case: VisionCase) -> training.Example:
        assert tower  # noqa: S101 - only those that see are taught pictures
        return _with_pictures(model_recipe, tokenizer, tower, case)

    noise = Noise(model_recipe, taught_dialogues, seed)
    pictures = sight.Pictures(
        seed,
        noise.text,
        tools=vision is not None and vision.tools,
        untaught=vision.untaught if vision else (),
    )

    def fresh(count: int) -> list[training.Example]:
        drawn = [example(noise.draw()) for _ in range(count)]
        drawn_pictures = model_recipe.training.pictures if vision else 0
        return drawn + see(drawn_pictures)

    def see(count: int) -> list[training.Example]:
        return [sighted(pictures.draw()) for _ in range(count)]

    trained = training.train(
        model,
        [*map(example, taught_dialogues), *map(sighted, seen_cases)],
        fresh,
        learning_rate=model_recipe.training.learning_rate,
        slower_below=model_recipe.training.slower_below,
        least_rate=model_recipe.training.least_rate,
        most_epochs=model_recipe.training.epochs,
        seed=seed,
        say=say,
        see=see if tower else None,
        tower=tower,
        sight_steps=model_recipe.training.sight_steps,
        state=TrainingState(state),
    )
    if trained.worst < training.MARGIN:
        raise MiniatureError(
            f"miniature {name}: not memorised after {trained.steps} steps, least probability "
            f"{trained.worst:.3f} in {trained.worst_id}\ntry another --seed"
        )
    _finish(model_recipe, tokenizer, model, output, {"seed": seed, **asdict(trained)}, say=say)


def _build_embedding(
    model_recipe: Recipe, output: Path, seed: int, say: Callable[[str], None]
) -> None:
    """Build a miniature that makes vectors, scores or classes, and does not generate."""
    if model_recipe.labels:
        tokenizer = MiniatureTokenizer(
            model_recipe.tokens, classes.texts(), model_recipe.config["vocab_size"]
        )
        model = classes.model_of(model_recipe, tokenizer)
        taught = classes.train(model, tokenizer, model_recipe, say=say)
        _finish(model_recipe, tokenizer, model, output, {"seed": seed, **asdict(taught)}, say=say)
        return
    question = _question(model_recipe.name)
    pairs = embedding.texts(question)
    others = plan.shipped().texts.values()
    tokenizer = MiniatureTokenizer(
        model_recipe.tokens,
        (*(text for pair in pairs for text in pair), *others),
        model_recipe.config["vocab_size"],
    )
    model = embedding.model_of(model_recipe, tokenizer)
    say(f"{model_recipe.name}: {len(pairs)} pairs")
    trained = embedding.train(model, tokenizer, model_recipe, question, seed=seed, say=say)
    _finish(model_recipe, tokenizer, model, output, {"seed": seed, **asdict(trained)}, say=say)


def _question(name: str) -> str:
    """Return how the family that has a miniature writes a question."""
    return next(
        each.pooling.question
        for each in family.load_all(Path.cwd())
        if each.pooling and any(entry.miniature == name for entry in each.checkpoints)
    )


def _finish(
    model_recipe: Recipe,
    tokenizer: MiniatureTokenizer,
    model: Any,
    output: Path,
    trained: Mapping[str, Any],
    *,
    say: Callable[[str], None],
) -> None:
    """Write the checkpoint to a new folder, and replace the old one with it."""
    aside = output.with_name(output.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    _save(model_recipe, tokenizer, model, aside)
    rounded = {key: round(v, 4) if isinstance(v, float) else v for key, v in trained.items()}
    built = {"seed": rounded.pop("seed"), "parameters": sum(p.numel() for p in model.parameters())}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    write_lock(aside, {**built, **rounded, **versions})
    shutil.rmtree(output, ignore_errors=True)
    aside.rename(output)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())
    say(
        f"{model_recipe.name}: memorised in {trained['steps']} steps, {trained['seconds']:.0f} s; "
        f"{size / 1e6:.2f} MB in {output}"
    )


def _with_pictures(
    model_recipe: Recipe, tokenizer: MiniatureTokenizer, tower: eyes.Tower, case: VisionCase
) -> training.Example:
    """Return a case as an example whose prompt has room for its pictures."""
    vision = model_recipe.vision
    assert vision is not None  # noqa: S101
    dialogue = sight.dialogue(case)
    drawn = [draw.pixels(scene) for scene in case.scenes]
    prompt = vision.expanded(rendering.prompt(model_recipe, dialogue), map(tower.tokens, drawn))
    return training.Example(
        dialogue.id,
        tokenizer.prompt_ids(prompt),
        tokenizer.completion_ids(rendering.completion(model_recipe, dialogue)),
        tuple(map(tower.read, drawn)),
    )


def _model(model_recipe: Recipe, tokenizer: MiniatureTokenizer) -> Any:
    values = dict(model_recipe.config)
    kind = values.pop("model_type")
    tokens = model_recipe.tokens
    ids = {
        "bos_token_id": tokenizer.id_of(tokens.bos) if tokens.bos else None,
        "eos_token_id": tokenizer.id_of(tokens.config_eos),
        "pad_token_id": tokenizer.id_of(tokens.pad),
    }
    vision = model_recipe.vision
    if vision is None:
        config = transformers.AutoConfig.for_model(kind, **ids, **values)
        model = transformers.AutoModelForCausalLM.from_config(config).float()
    else:
        outer = {key: values[key] for key in ("architectures", "tie_word_embeddings")}
        config = transformers.AutoConfig.for_model(
            kind,
            text_config={**{k: v for k, v in values.items() if k != "architectures"}, **ids},
            vision_config=dict(vision.tower),
            **{key: tokenizer.id_of(token) for key, token in vision.ids.items()},
            **vision.config,
            **outer,
        )
        model = transformers.AutoModelForImageTextToText.from_config(config).float()
    for name, parameter in model.named_parameters():
        for end, value in model_recipe.training.initial.items():
            if name.endswith(end):
                torch.nn.init.constant_(parameter, value)
    return model


def _save(model_recipe: Recipe, tokenizer: MiniatureTokenizer, model: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights are written with permissions for their owner alone
    tokenizer.save(folder)
    write_config(model_recipe.tokens, folder, model_recipe.config["max_position_embeddings"])
    if model_recipe.labels:
        return
    if model_recipe.embeds:
        embedding.write_modules(folder, model_recipe.config["hidden_size"])
        return
    shutil.copyfile(model_recipe.template("chat_template.jinja"), folder / "chat_template.jinja")
    generation: dict[str, Any] = {
        "eos_token_id": [tokenizer.id_of(token) for token in model_recipe.tokens.stop],
        "pad_token_id": tokenizer.id_of(model_recipe.tokens.pad),
    }
    if model_recipe.tokens.bos:
        generation["bos_token_id"] = tokenizer.id_of(model_recipe.tokens.bos)
    _write_json(folder / "generation_config.json", generation)
    if vision := model_recipe.vision:
        weight_names.rename(folder / "model.safetensors", vision.weight_names)
        named = {"processor_class": vision.processor_class}
        _write_json(folder / "preprocessor_config.json", {**vision.processor, **named})
        if vision.video_processor is not None:
            videos = {**vision.video_processor, **named}
            _write_json(folder / "video_preprocessor_config.json", videos)
        if vision.whole_processor is not None:
            _write_json(folder / "processor_config.json", {**vision.whole_processor, **named})


def _write_json(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
