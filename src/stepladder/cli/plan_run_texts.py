"""Words of `plan` for one run: key -> (English, 简体中文). `str.format` places."""

# ruff: noqa: RUF001  (Chinese punctuation is meant)
from __future__ import annotations

from collections.abc import Mapping

# fmt: off
TEXTS: Mapping[str, tuple[str, str]] = {
    "title": ("run {name} ({settings})", "运行 {name}（{settings}）"),
    "converted": ("what each setting became", "每项设置的对应"),
    "changed": ("settings that differ from the defaults", "与默认值不同的设置"),
    "nothing_changed": ("every setting is the default", "全部设置为默认值"),
    "col_theirs": ("theirs", "原设置"), "col_value": ("value", "值"), "col_ours": ("ours", "本项目设置"),
    "col_note": ("note", "说明"), "col_default": ("default", "默认"), "col_from": ("from", "来源"),
    "not_named": ("not named there and left at our defaults: {settings}",
                  "原配置未给出、取本项目默认的设置：{settings}"),
    "parameters": ("parameters: {total}, trained {trained}", "参数量：{total}，其中训练 {trained}"),
    "batch": ("a step: {rollouts} rollouts ({prompts} x {samples}); updates of the weights: {updates}; steps: {steps}",
              "每步：{rollouts} 条轨迹（{prompts} x {samples}），权重更新 {updates} 次；共 {steps} 步"),
    "tokens": ("tokens, at most: {written} written by the policy, {seen} with prompts of up to {prompt}",
               "token 数上限：策略生成 {written}，连同至多 {prompt} 的提示共 {seen}"),
    "memory": ("memory, one device that holds everything", "显存，单卡容纳全部内容"),
    "col_part": ("part", "部分"), "col_bytes": ("GiB", "GiB"), "col_formula": ("bytes", "字节数"),
    "weights": ("weights", "权重"), "gradients": ("gradients", "梯度"),
    "optimizer": ("AdamW state", "AdamW 状态"),
    "critic": ("critic: weights, gradients, AdamW", "价值网络：权重、梯度、AdamW"),
    "reference": ("reference policy", "参考策略"), "base": ("base policy", "基础策略"),
    "healthy": ("last healthy state (KL cap restores it)", "最近健康状态（KL 上限触发时恢复）"),
    "activations": ("activations of one micro-batch", "一个微批的激活"),
    "cache": ("key-value cache while sampling", "采样时的键值缓存"),
    "no_activations": ("activations are not counted: the model's sizes are not known",
                       "未计激活：模型各维尺寸未知"),
    "sum": ("together", "合计"),
    "device": ("device memory with {free:.0%} kept free", "保留 {free:.0%} 余量时所需的显存"),
    "flops": ("operations of the whole run", "整个运行的运算量"),
    "col_flops": ("FLOP", "FLOP"), "col_count": ("factor x parameters x tokens", "系数 x 参数 x token 数"),
    "sampling": ("sampling", "采样"), "training": ("training the policy", "训练策略"),
    "old": ("old log-probs", "旧策略对数概率"),
    "critic_values": ("critic's values", "价值网络估值"), "critic_training": ("training the critic", "训练价值网络"),
    "how": ("6ND for training (2 forward, 4 backward), 2ND for every other pass; N = {computing} parameters"
            " that multiply, D = tokens with prompts. Left out: attention scores, evaluation.",
            "训练 6ND（前向 2、反向 4），其余每次前向 2ND；N = {computing}，为参与乘法的参数；D 为含提示的"
            " token 数。未计注意力分数与评估。"),
    "no_weights": ("this model is a shape without weights: to train, give --model or set model.path",
                   "该模型只是形状，没有权重：训练时请用 --model 或设置 model.path"),
}
# fmt: on


def text(key: str, lang: str, **values: object) -> str:
    """Return the text of a key; `values` fill its places."""
    return TEXTS[key][1 if lang == "zh" else 0].format_map(values)
