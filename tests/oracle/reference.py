#!/usr/bin/env python3
"""Kimi K3 in float64, straight from the formulas, and a comparison with sluice.

    reference.py MODEL --ids 1,2,3 --new 4,5 --logits FILE [--trace FILE]
                 [--mla-latent-eps E] [--break NAME,NAME|visible]

FILE and the ids of --new are what `sluice run MODEL --ids 1,2,3 -n 2
--ignore-eos --logits FILE --trace FILE` wrote. The exit status is 0 when

- no logit of any position differs by more than LOGITS_APART of the largest,
- each new id is the reference's best one too. Ids are fed as sluice chose
  them: as long as every one agrees, that is the reference's own continuation.
  Where its best two are closer than two such differences, either will do,
- with a trace, each layer and position chose the same experts and gave them
  the same shares; 16-bit shares are all that a trace holds.

--break puts a mistake of mistakes.py into the formulas below, for each NAME by
itself, and tells what of the above notices it.

It shares nothing with the engine. In the comments x [positions, in] are rows, L
is counted from 0, and a matrix W [out, in] is applied as
y[o] = sum_i W[o,i] x[i].
"""
import argparse
import json
import os
import struct
import sys
import types

import numpy as np

LOGITS_APART = 2e-5
SHARES_APART = 1 / 65535 + 2e-5
TEXT = 'language_model.model.'
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


class Checkpoint:
    """The tensors of all shards by name, as float64."""

    def __init__(self, folder):
        with open(os.path.join(folder, 'config.json')) as file:
            self.config = json.load(file)['text_config']
        self.where = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith('.safetensors'):
                self.read_header(os.path.join(folder, name))

    def read_header(self, path):
        with open(path, 'rb') as file:
            length, = struct.unpack('<Q', file.read(8))
            header = json.loads(file.read(length))
        for name, entry in header.items():
            if name != '__metadata__':
                self.where[name] = (path, 8 + length, entry)

    def raw(self, name):
        path, base, entry = self.where[name]
        begin, end = entry['data_offsets']
        with open(path, 'rb') as file:
            file.seek(base + begin)
            data = file.read(end - begin)
        kind = {'F32': '<f4', 'BF16': '<u2', 'U8': 'u1'}[entry['dtype']]
        return np.frombuffer(data, kind).reshape(entry['shape'])

    def __getitem__(self, name):
        values = self.raw(name)
        if values.dtype.itemsize == 2:  # bf16 is the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float64)

    def mxfp4(self, name):
        """w[r,c] = E2M1[nibble] * 2^(scale[r, c/32] - 127); even columns are
        the low nibbles."""
        packed = self.raw(name + '.weight_packed')
        scale = self.raw(name + '.weight_scale').astype(np.float64)
        low, high = packed & 15, packed >> 4
        codes = np.stack([low, high], axis=-1).reshape(len(packed), -1)
        return E2M1[codes] * np.repeat(2.0 ** (scale - 127), 32, axis=1)


def linear(x, w):
    return x @ w.T


def sigma(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)  # 1/(1+e^-x) that cannot overflow


def silu(x):
    return x * sigma(x)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def unit_rms(x, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def rms(x, w, eps):
    """w[i] * x[i] / sqrt(mean_j(x[j]^2) + eps)"""
    return w * unit_rms(x, eps)


def l2(x):
    """KDA: the sum, not the mean; eps on the sum."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def conv(x, w):
    """KDA: y_t[c] = silu(sum_j w[c,0,j] x_{t-K+1+j}[c]), K taps, the
    last on the current row; rows before the first are 0."""
    K = w.shape[-1]
    padded = np.concatenate([np.zeros((K - 1, x.shape[1])), x])
    y = sum(w[:, 0, j] * padded[j:j + len(x)] for j in range(K))
    return silu(y)


class Model:
    def __init__(self, checkpoint, eps_lat=1e-6):
        self.tensors = checkpoint
        self.t = checkpoint.config
        self.l = self.t['linear_attn_config']
        self.eps = self.t['rms_norm_eps']
        self.eps_lat = eps_lat
        self.routes = []  # (chosen, weights) [positions, k] of each MoE layer

    def w(self, prefix, name):
        return self.tensors[prefix + name + '.weight']

    def situ(self, g, u):
        """b1 tanh(g/b1) sigma(g) * b2 tanh(u/b2); sigma of the uncapped
        g."""
        b1 = self.t['activation_situ_beta']
        b2 = self.t['activation_situ_linear_beta']
        gate = b1 * np.tanh(g / b1) * sigma(g)
        up = b2 * np.tanh(u / b2)
        return gate * up

    def mlp(self, x, M):
        g = linear(x, self.w(M, 'gate_proj'))
        u = linear(x, self.w(M, 'up_proj'))
        return linear(self.situ(g, u), self.w(M, 'down_proj'))

    def mix(self, B, p, name):
        """h = sum_s prob_s v_s; the scores are of normed sources, the sum
        is of raw ones."""
        v = np.stack(B + [p])
        k = unit_rms(v, self.eps)
        folded = self.w(name, '_norm') * self.w(name, '_proj')[0]
        prob = softmax(k @ folded, 0)
        return np.einsum('st,sti->ti', prob, v)

    def kda(self, x, A):
        """The gated delta rule with a decay per key channel."""
        H, D = self.l['num_heads'], self.l['head_dim']
        heads = (len(x), H, D)

        def projected(name):
            y = linear(x, self.w(A, name + '_proj'))
            return conv(y, self.w(A, name + '_conv1d')).reshape(heads)

        q = l2(projected('q')) * D ** -0.5
        k = l2(projected('k'))
        v = projected('v')
        beta = sigma(linear(x, self.w(A, 'b_proj')))
        f = linear(linear(x, self.w(A, 'f_a_proj')), self.w(A, 'f_b_proj'))
        z = (f + self.tensors[A + 'dt_bias']).reshape(heads)
        # The file may hold more values than there are heads.
        rate = np.exp(self.tensors[A + 'A_log'][:H])[:, None]
        alpha = np.exp(self.l['gate_lower_bound'] * sigma(rate * z))
        o = self.recurrence(q, k, v, alpha, beta)
        y = rms(o, self.w(A, 'o_norm'), self.eps).reshape(len(x), H * D)
        y = y * sigma(linear(x, self.w(A, 'g_proj')))
        return linear(y, self.w(A, 'o_proj'))

    @staticmethod
    def recurrence(q, k, v, alpha, beta):
        """For all heads h at once: decay, read, write, read."""
        T, H, D = q.shape
        S = np.zeros((H, D, D))  # [h][i, a key channel][j, a value channel]
        o = np.zeros((T, H, D))
        for t in range(T):
            S = S * alpha[t][:, :, None]
            u = np.einsum('hi,hij->hj', k[t], S)
            delta = beta[t][:, None] * (v[t] - u)
            S = S + np.einsum('hi,hj->hij', k[t], delta)
            o[t] = np.einsum('hi,hij->hj', q[t], S)
        return o

    def mla(self, x, A):
        """Latent attention, not absorbed. Nothing is rotated."""
        H, T = self.t['num_attention_heads'], len(x)
        nope, rope = self.t['qk_nope_head_dim'], self.t['qk_rope_head_dim']
        rank = self.t['kv_lora_rank']
        ql = rms(linear(x, self.w(A, 'q_a_proj')), self.w(A, 'q_a_layernorm'),
                 self.eps_lat)
        q = linear(ql, self.w(A, 'q_b_proj')).reshape(T, H, nope + rope)
        q_n, q_r = q[..., :nope], q[..., nope:]
        c = linear(x, self.w(A, 'kv_a_proj_with_mqa'))
        gain = self.w(A, 'kv_a_layernorm')
        lat, r = rms(c[:, :rank], gain, self.eps_lat), c[:, rank:]
        kv = linear(lat, self.w(A, 'kv_b_proj')).reshape(T, H, -1)
        k_n, v = kv[..., :nope], kv[..., nope:]
        dots = np.einsum('thd,shd->hts', q_n, k_n)
        dots = dots + np.einsum('thd,sd->hts', q_r, r)  # one r for all heads
        score = dots * (nope + rope) ** -0.5
        score = np.where(np.tri(T, dtype=bool), score, -np.inf)
        o = np.einsum('hts,shd->thd', softmax(score, -1), v).reshape(T, -1)
        y = o * sigma(linear(x, self.w(A, 'g_proj')))
        return linear(y, self.w(A, 'o_proj'))

    def router(self, x, M):
        """The best of the biased scores, equal ones by lowest index; the
        weights come from the unbiased scores."""
        s = sigma(linear(x, self.w(M, 'gate')))
        biased = s + self.tensors[M + 'gate.e_score_correction_bias']
        best = np.argsort(-biased, axis=-1, kind='stable')
        chosen = best[:, :self.t['num_experts_per_token']]
        weights = np.take_along_axis(s, chosen, axis=-1)
        if self.t['moe_renormalize']:
            weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
        return chosen, weights * self.t['routed_scaling_factor']

    def expert(self, z, E):
        """w1 is the gate, w2 the down, w3 the up projection."""
        w1, w2, w3 = (self.tensors.mxfp4(E + w) for w in ('w1', 'w2', 'w3'))
        return linear(self.situ(linear(z, w1), linear(z, w3)), w2)

    def moe(self, x, M):
        """Routed experts in the latent space, normed once as a sum, and
        the shared expert on the full width."""
        chosen, weights = self.router(x, M)
        self.routes.append((chosen, weights))
        z = linear(x, self.w(M, 'routed_expert_down_proj'))
        acc = np.zeros_like(z)
        for e in np.unique(chosen):
            t, rank = np.nonzero(chosen == e)
            y = self.expert(z[t], f'{M}experts.{e}.')
            acc[t] += weights[t, rank][:, None] * y
        if self.t['latent_moe_use_norm']:
            acc = rms(acc, self.w(M, 'routed_expert_norm'), self.eps)
        routed = linear(acc, self.w(M, 'routed_expert_up_proj'))
        shared = self.mlp(x, M + 'shared_experts.')
        return routed + shared

    def attention(self, x, L):
        A = f'{TEXT}layers.{L}.self_attn.'
        if L + 1 in self.l['full_attn_layers']:  # counted from 1
            return self.mla(x, A)
        return self.kda(x, A)

    def ffn(self, x, L):
        if L < self.t['first_k_dense_replace']:
            return self.mlp(x, f'{TEXT}layers.{L}.mlp.')
        return self.moe(x, f'{TEXT}layers.{L}.block_sparse_moe.')

    def logits(self, ids):
        """The logits of every position, [positions, vocab]."""
        B, p = [], self.w(TEXT, 'embed_tokens')[ids]
        for L in range(self.t['num_hidden_layers']):
            N = f'{TEXT}layers.{L}.'
            h = self.mix(B, p, N + 'self_attention_res') if B else p
            if L % self.t['attn_res_block_size'] == 0:
                B, p = B + [p], None
            x = rms(h, self.w(N, 'input_layernorm'), self.eps)
            a = self.attention(x, L)
            p = a if p is None else p + a
            h = self.mix(B, p, N + 'mlp_res')
            x = rms(h, self.w(N, 'post_attention_layernorm'), self.eps)
            m = self.ffn(x, L)
            p = p + m
        h = self.mix(B, p, TEXT + 'output_attn_res')
        return linear(rms(h, self.w(TEXT, 'norm'), self.eps),
                      self.tensors['language_model.lm_head.weight'])


def read_trace(path):
    """(ids, shares), each [positions, MoE layers, k], of a "MOETRACE" file."""
    with open(path, 'rb') as file:
        data = file.read()
    assert data[:8] == b'MOETRACE', f'{path} is no trace'
    flags, layers = struct.unpack_from('<IH', data, 16)
    k, = struct.unpack_from('<H', data, 28)
    meta, = struct.unpack_from('<I', data, 76)
    assert flags & 2, f'{path} has no shares'
    at, cells, rows = 128 + meta, layers * k, {}
    while at < len(data):
        record_bytes, = struct.unpack_from('<I', data, at)
        position, = struct.unpack_from('<I', data, at + 8)
        columns = np.frombuffer(data, '<u2', 2 * cells, at + 24)
        rows[position] = columns.reshape(2, layers, k)
        at += record_bytes
    both = np.stack([rows[position] for position in sorted(rows)])
    return both[:, 0], both[:, 1] / 65535


def share_by_expert(ids, weights, experts):
    """[..., k] choices as [..., experts] shares; -1 for those not chosen, so
    that another choice is a difference of 1 or more."""
    shares = weights / weights.sum(-1, keepdims=True)
    table = np.full(ids.shape[:-1] + (experts,), -1.0)
    np.put_along_axis(table, ids.astype(np.int64), shares, axis=-1)
    return table


class Seen:
    """What sluice computed, and how a reference differs from it."""

    def __init__(self, arguments, vocab):
        self.prompt = [int(i) for i in arguments.ids.split(',')]
        self.new = [int(i) for i in arguments.new.split(',') if i]
        # The last new id was chosen and not fed.
        self.fed = self.prompt + self.new[:-1]
        self.logits = np.fromfile(arguments.logits, '<f4').reshape(-1, vocab)
        assert len(self.logits) == len(self.fed), 'not a row a position'
        self.trace = read_trace(arguments.trace) if arguments.trace else None

    def logits_apart(self, want):
        """Largest difference of each position over the largest logit."""
        return np.abs(self.logits - want).max(-1) / np.abs(want).max()

    def other_ids(self, want):
        """Positions whose best id is another and clearly so."""
        close = 2 * LOGITS_APART * np.abs(want).max()
        second, first = np.partition(want, -2, axis=-1)[:, -2:].T
        got = self.logits.argmax(-1)
        got[len(self.prompt) - 1:][:len(self.new)] = self.new
        return np.nonzero((got != want.argmax(-1)) &
                          (first - second > close))[0]

    def routes_apart(self, routes, experts):
        """Largest difference of a share; 1 or more for another choice."""
        want = [share_by_expert(*route, experts) for route in routes]
        got = share_by_expert(*self.trace, experts)
        return np.abs(np.stack(want, axis=1) - got).max()

    def differences(self, model):
        """(how far apart the logits are, sentences: none when all agrees)"""
        want = model.logits(self.fed)
        wrong = []
        apart = self.logits_apart(want)
        for t in np.nonzero(~(apart <= LOGITS_APART))[0]:
            wrong.append(f'logits of position {t}: {apart[t]:.1e} apart')
        for t in self.other_ids(want):
            wrong.append(f'best id of position {t}: {want[t].argmax()} here')
        if self.trace:
            share = self.routes_apart(model.routes, model.t['num_experts'])
            if not share <= SHARES_APART:
                wrong.append(f'router: shares {share:.1e} apart')
        return apart.max(), wrong


def broken(mistake):
    """This module with some of its text replaced."""
    with open(__file__) as file:
        text = file.read()
    for right, wrong in mistake:
        assert text.count(right) == 1, f'{right!r} is not here once'
        text = text.replace(right, wrong)
    module = types.ModuleType('broken')
    exec(compile(text, 'broken reference.py', 'exec'), module.__dict__)
    return module


def break_each(arguments, seen):
    from mistakes import HIDDEN, VISIBLE
    names = arguments.broken.split(',')
    for name in VISIBLE if names == ['visible'] else names:
        module = broken({**HIDDEN, **VISIBLE}[name])
        model = module.Model(module.Checkpoint(arguments.model),
                             arguments.mla_latent_eps)
        with np.errstate(all='ignore'):
            apart, wrong = seen.differences(model)
        print(name, 'noticed' if wrong else 'unnoticed', f'{apart:.1e}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('model')
    parser.add_argument('--ids', required=True)
    parser.add_argument('--new', default='')
    parser.add_argument('--logits', required=True)
    parser.add_argument('--trace')
    parser.add_argument('--mla-latent-eps', type=float, default=1e-6)
    parser.add_argument('--break', dest='broken')
    arguments = parser.parse_args()
    model = Model(Checkpoint(arguments.model), arguments.mla_latent_eps)
    seen = Seen(arguments, model.t['vocab_size'])
    if arguments.broken:
        return break_each(arguments, seen)
    apart, wrong = seen.differences(model)
    print(f'logits {apart:.1e} apart at most, {len(seen.fed)} positions')
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
