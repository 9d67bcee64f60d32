"""Mistakes that are easily made with Kimi K3, as changes to the text of
reference.py: for each name, what stands there once and what to put there."""

# Too small to be seen in K3: see what test_reference.sh does about them.
HIDDEN = {
    'no-renormalisation': [
        ("if self.t['moe_renormalize']:", 'if False:')],
    'latent-eps-1e-5': [
        ('self.eps_lat = eps_lat', 'self.eps_lat = 1e-5')],
}

VISIBLE = {
    # MLA
    'norm-over-the-rope-slot': [
        ('rms(c[:, :rank], gain, self.eps_lat), c[:, rank:]',
         'unit_rms(c, self.eps_lat)[:, :rank] * gain, '
         'unit_rms(c, self.eps_lat)[:, rank:]')],
    'scale-of-nope': [
        ('dots * (nope + rope) ** -0.5', 'dots * nope ** -0.5')],
    'no-rope-slot': [
        ("dots = dots + np.einsum('thd,sd->hts', q_r, r)", 'pass')],
    'no-mla-gate': [
        ("y = o * sigma(linear(x, self.w(A, 'g_proj')))", 'y = o')],

    # Router and experts
    'norm-per-expert': [
        ("weights[t, rank][:, None] * y",
         "weights[t, rank][:, None] * rms(y, "
         "self.w(M, 'routed_expert_norm'), self.eps)"),
        ("acc = rms(acc, self.w(M, 'routed_expert_norm'), self.eps)",
         'pass')],
    'weights-of-biased-scores': [
        ('np.take_along_axis(s, chosen', 'np.take_along_axis(biased, chosen')],
    'no-router-bias': [
        ("biased = s + self.tensors[M + 'gate.e_score_correction_bias']",
         'biased = s')],
    'w1-and-w3-swapped': [
        ('linear(z, w1), linear(z, w3)', 'linear(z, w3), linear(z, w1)')],
    'nibbles-swapped': [
        ('[low, high]', '[high, low]')],
    'no-shared-expert': [
        ('return routed + shared', 'return routed')],

    # SiTU
    'sigma-of-the-capped-gate': [
        ('b1 * np.tanh(g / b1) * sigma(g)',
         'silu(b1 * np.tanh(g / b1))')],
    'up-uncapped': [
        ('up = b2 * np.tanh(u / b2)', 'up = u')],
    'swiglu': [
        ('return gate * up', 'return silu(g) * u')],

    # KDA
    'q-not-scaled': [
        ("l2(projected('q')) * D ** -0.5", "l2(projected('q'))")],
    'v-normed': [
        ("v = projected('v')", "v = l2(projected('v'))")],
    'k-normed-by-mean': [
        ("k = l2(projected('k'))", "k = unit_rms(projected('k'), 1e-6)")],
    'softplus-decay': [
        ("alpha = np.exp(self.l['gate_lower_bound'] * sigma(rate * z))",
         'alpha = np.exp(-rate * np.log1p(np.exp(z)))')],
    'a-per-channel': [
        ("rate = np.exp(self.tensors[A + 'A_log'][:H])[:, None]",
         "rate = np.exp(np.resize(self.tensors[A + 'A_log'], D))")],
    'decay-of-values': [
        ('S * alpha[t][:, :, None]', 'S * alpha[t][:, None, :]')],
    'delta-of-the-undecayed-state': [
        ("            S = S * alpha[t][:, :, None]\n"
         "            u = np.einsum('hi,hij->hj', k[t], S)\n",
         "            u = np.einsum('hi,hij->hj', k[t], S)\n"
         "            S = S * alpha[t][:, :, None]\n")],
    'output-before-the-write': [
        ("            S = S + np.einsum('hi,hj->hij', k[t], delta)\n"
         "            o[t] = np.einsum('hi,hij->hj', q[t], S)\n",
         "            o[t] = np.einsum('hi,hij->hj', q[t], S)\n"
         "            S = S + np.einsum('hi,hj->hij', k[t], delta)\n")],
    'gate-before-the-norm': [
        ("y = rms(o, self.w(A, 'o_norm'), self.eps).reshape(len(x), H * D)\n"
         "        y = y * sigma(linear(x, self.w(A, 'g_proj')))",
         "y = o * sigma(linear(x, self.w(A, 'g_proj'))).reshape(heads)\n"
         "        y = rms(y, self.w(A, 'o_norm'), self.eps)\n"
         "        y = y.reshape(len(x), H * D)")],
    'silu-gate': [
        ("y = y * sigma(linear(x, self.w(A, 'g_proj')))",
         "y = y * silu(linear(x, self.w(A, 'g_proj')))")],
    'taps-reversed': [
        ('w[:, 0, j] * padded', 'w[:, 0, K - 1 - j] * padded')],
    'conv-without-silu': [
        ('return silu(y)', 'return y')],

    # Attention residuals
    'values-normed': [
        ("np.einsum('st,sti->ti', prob, v)",
         "np.einsum('st,sti->ti', prob, k)")],
    'keys-not-normed': [
        ('softmax(k @ folded, 0)', 'softmax(v @ folded, 0)')],
    'no-final-mix': [
        ("h = self.mix(B, p, TEXT + 'output_attn_res')", 'h = p')],
    'no-reset': [
        ('B, p = B + [p], None', 'B = B + [p]')],
    'snapshot-of-the-mix': [
        ('B, p = B + [p], None', 'B, p = B + [h], None')],
    'mix-accumulated': [
        ('p = p + m', 'p = h + m')],
}
