"""The equations of the claims as plain text, readable in a terminal; those of corrected claims as they are true."""

from __future__ import annotations

_G = "g(p, γ) = (1 − p)^γ − γ p (1 − p)^(γ−1) log p"
_PHI = "φ(v) = (1 − v)^γ − γ v (1 − v)^(γ−1) log v"
_GAMMA_STAR = """\
γ*(p₀) = a/b + W₋₁(−a^(1 − a/b) · log a / b) / log a
with a = 1 − p₀ and b = p₀ log p₀; W₋₁ is a branch of Lambert's W"""
_PSI = "Ψᵢ(v) = h(vᵢ) / Σₗ h(vₗ),   h(v) = v / φ(v)\n" + _PHI
_BINARY_MAP = "p(q) = 1 / (1 + ((1−q)/q)^γ · ((1−q) − γ q log q) / (q − γ (1−q) log(1−q)))"
_FOCAL = "L_f(p) = −(1 − p)^γ log p"
_RISK = "q* = argmin_q −Σᵢ ηᵢ (1 − qᵢ)^γ log qᵢ"
_BINS = "ECE = Σᵢ |Bᵢ|/N · |Aᵢ − Cᵢ|"
_CLOSE = "T(γ) = argmin_T max_s |FC_γ(s) − softmax(s/T)|"
_STEP = "γ_b ← γ_b · exp(λ (C_b − A_b))"

EQUATIONS: dict[str, str] = {
    "mukhoti2020.eq1": f"{_BINS},   Bᵢ = rows with confidence in ((i−1)/M, i/M]",
    "mukhoti2020.eq2": "MCE = maxᵢ |Aᵢ − Cᵢ|",
    "mukhoti2020.eq3": f"Ada{_BINS},   |Bᵢ| = |Bⱼ| to within one row",
    "mukhoti2020.sec3.weights-infinite": "L_c ≥ log(1 + (K−1) exp(−√2 ‖W‖ max‖x‖)) > 0",
    "mukhoti2020.ce-above-kl": "L_c = KL(q‖p) + H[q] ≥ KL(q‖p)",
    "mukhoti2020.eq4": "L_f = −Σ_y (1 − p_y)^γ q_y log p_y ≥ KL(q‖p) − γ H[p]",
    "mukhoti2020.appA.stronger": "L_f ≥ L_c − γ H[p] = KL(q‖p) + H[q] − γ H[p]",
    "mukhoti2020.fn1.improper": "argmin_p L_f(p, q) = q  for one-hot q;  ≠ q in general",
    "mukhoti2020.appA.onehot": "L_f ≥ KL(q‖p) − γ H[p],   q one-hot",
    "mukhoti2020.fig6": "p* = argmin_x −(1−x)^γ q log x − x^γ (1−q) log(1−x)",
    "mukhoti2020.prop1": f"∂L_f/∂w = g(p_y, γ) · ∂L_c/∂w\n{_G}",
    "mukhoti2020.prop1.norm": "‖∂L_f/∂w‖ ≤ ‖∂L_c/∂w‖  where  0 ≤ g(p_y, γ) ≤ 1",
    "mukhoti2020.g.limits": f"{_G}\ng → 1 as p → 0,   g(1, γ) = 0",
    "mukhoti2020.eq8": "∂g/∂p = γ (1−p)^(γ−2) [−2(1−p) − (1−p) log p + (γ−1) p log p]",
    "mukhoti2020.eq10": "sign ∂g/∂p = sign k(p, γ),   k = 2(1−p)/log p + 1 − γp",
    "mukhoti2020.g.threshold": f"{_G}\ng ≥ 1 on [0, p₀],   g < 1 on (p₀, 1]",
    "mukhoti2020.g.p0-gamma1": "g(p₀, 1) = 1 − p₀ − p₀ log p₀ = 1  ⇒  p₀ = 1/e = 0.3679",
    "mukhoti2020.g.steeper": _G,
    "mukhoti2020.sec4.early-faster": f"{_G} > 1  for p < p₀",
    "mukhoti2020.sec4.gamma7": f"{_G},   g(½, 7) = 0.0457",
    "mukhoti2020.prop2": f"g(p, γ) ≤ 1 for p ≥ p₀ and γ ≥ γ*\n{_GAMMA_STAR}",
    "mukhoti2020.prop2.equality": f"g = 1 only at p = p₀, γ = γ*  (p₀ < ½)\n{_GAMMA_STAR}",
    "mukhoti2020.prop2.w0": "γ = a/b + W₀(−a^(1 − a/b) · log a / b) / log a = 0  for p₀ < ½",
    "mukhoti2020.prop2.minimum": "−1/e ≤ −a^(1 − a/b) · log a / b < 0,   least at p₀ = ½",
    "mukhoti2020.schedule.values": "g(0.2, 5) = 0.98691,   g(0.25, 3) = 1.00672",
    "mukhoti2020.schedule.region": "γ(p) = 5 for p < 0.2, else 3;   g(p, γ(p)) > 1 up to about 0.25",
    "mukhoti2020.flsd53.rule": "γ(p_y) = 5 for p_y < 0.2, 3 for p_y ≥ 0.2",
    "mukhoti2020.flsd532.rule": "γ(p_y) = 5 for p_y < 0.2, 3 for p_y < 0.5, else 2",
    "mukhoti2020.flsc.rule": "γ = 5 for 100 epochs, 3 for 150, then 2 (or 1) for 100",
    "mukhoti2020.ls.rule": "sᵢ = (1 − α) qᵢ + α (1 − qᵢ)/(K − 1)",
    "ghosh2022.eq1": "L = −(1 + p)^γ log p",
    "ghosh2022.fn2.gradient": f"{_G}\n∂g/∂γ < 0  for  γ > (1−p)/(p log p) − 1/log(1−p)",
    "ghosh2022.eq2": "γₙ = exp(λ (pₙ − A_b))",
    "ghosh2022.fig3a": "L = −(1 − p)^γ log p,   γ = exp(λ (p − 0.8))",
    "ghosh2022.eq3": "γ_b = exp(λ (C_b − A_b))",
    "ghosh2022.calfocal.limit1": "C_b − A_b → 0  ⇒  γ_b = exp(λ (C_b − A_b)) → 1",
    "ghosh2022.calfocal.limit2": "C_b − A_b = E always  ⇒  γ_b = exp(λ E) always",
    "ghosh2022.eq4": f"{_STEP},   so γ_t = γ₀ exp(λ Σ (C_b − A_b))",
    "ghosh2022.eq4.fixpoint": f"{_STEP} = γ_b  ⇔  C_b = A_b  (or at a bound)",
    "ghosh2022.eq5": "L = −(1 − p)^γ log p  (γ ≥ 0),   −(1 + p)^|γ| log p  (γ < 0)",
    "ghosh2022.alg1.focal-step": "γ ← min(γ_max, γ exp(λ(C−A)));   if |γ| < S_th: γ ← −S_th",
    "ghosh2022.alg1.inverse-step": "γ ← max(γ_min, γ exp(−λ(C−A)));   if |γ| < S_th: γ ← S_th",
    "ghosh2022.hyper.gamma0": "γ_b = 1 in every bin b before the first update",
    "ghosh2022.hyper.lambda": f"{_STEP},   λ = 1",
    "ghosh2022.hyper.gamma-max": f"{_STEP},   γ_b ≤ γ_max = 20",
    "ghosh2022.hyper.gamma-min": f"{_STEP},   γ_b ≥ γ_min = −2",
    "ghosh2022.hyper.switch": "|γ_b| < S_th = 0.2  ⇒  focal and inverse focal loss change places",
    "ghosh2022.ts.grid": "T = argmin over {0.1, 0.2, …, 10} of equal-mass ECE on validation rows",
    "ghosh2022.frequency.counts": "updates an epoch = ⌊batches / n⌋",
    "ghosh2022.appF.bias": f"bias = E[ECE] − true calibration error;   {_BINS}",
    "charoenphakdee2021.eq5": "ℓ(u, v) = −Σᵢ vᵢ (1 − uᵢ)^γ log uᵢ",
    "charoenphakdee2021.thm3": f"argmaxᵢ q*ᵢ = argmaxᵢ ηᵢ,   {_RISK}",
    "charoenphakdee2021.thm3.order": f"ηᵢ < ηⱼ  ⇒  q*ᵢ < q*ⱼ,   {_RISK}",
    "charoenphakdee2021.thm5": f"{_RISK};   q* = η for all η  ⇔  γ = 0",
    "charoenphakdee2021.prop6": "q* uniform on a subset of the classes  ⇒  q* = η",
    "charoenphakdee2021.eq10": _PHI,
    "charoenphakdee2021.thm8.1": f"τ_oc = argmax φ,   φ(τ_uc) = 1,   0 < τ_oc < τ_uc < ½\n{_PHI}",
    "charoenphakdee2021.thm8.2": "max q* ≤ τ_oc  ⇒  max q* > max η",
    "charoenphakdee2021.thm8.3": "max q* ≥ τ_uc  ⇒  max q* < max η",
    "charoenphakdee2021.thm8.ambiguous": "τ_oc < max q* < τ_uc:  compare max q* with max Ψ(q*)",
    "charoenphakdee2021.fig1": _PHI,
    "charoenphakdee2021.cor9": "max q* > ½  ⇒  max q* < max η",
    "charoenphakdee2021.cor10": "K = 2:  ½ < max q* < 1  ⇒  max q* < max η",
    "charoenphakdee2021.fn2": f"max q* > max η;   {_RISK}",
    "charoenphakdee2021.sec4.large-k": f"max q* > max η;   {_RISK}",
    "charoenphakdee2021.fig2a": f"max η − max q* against γ;   {_RISK}",
    "charoenphakdee2021.fig2b": f"max η − max q*, K = 1000;   {_RISK}",
    "charoenphakdee2021.thm11": f"η = Ψ(q*)\n{_PSI}",
    "charoenphakdee2021.thm11.onehot": f"Ψ(v) = v for one-hot v, and for γ = 0\n{_PSI}",
    "charoenphakdee2021.prop12": f"argmaxᵢ Ψᵢ(v) = argmaxᵢ vᵢ\n{_PSI}",
    "charoenphakdee2021.psi.unique": f"Ψ(q*) = η, and no other map does it\n{_PSI}",
    "charoenphakdee2021.sec6.3.ts": "no T has softmax(log q* / T) = η for all η  (K ≥ 3)",
    "charoenphakdee2021.tsfl.def": "T = argmin_T Σₙ −(1 − pₙ)^γ log pₙ,   pₙ = softmax(sₙ/T) at yₙ",
    "komisarenko2024.prop1": f"d²L_f/dp² ≥ 0,   {_FOCAL}",
    "komisarenko2024.prop1.quadratic": (
        "d²L_f/dp² = (1−p)^(γ−2) [c₀ + c₁ γ + c₂ γ²],   cᵢ ≥ 0\nc₁ = (2 − 2p + p log p)/p"
    ),
    "komisarenko2024.ex062": "p* = argmin_x −0.8 (1−x)² log x − 0.2 x² log(1−x) = 0.6266",
    "komisarenko2024.ex062.range": "½ < p*(γ) < 0.8  for  γ > 0",
    "komisarenko2024.prop2": _BINARY_MAP,
    "komisarenko2024.prop2.gradients": f"L(p, y) = L*(p(q), y)\n{_BINARY_MAP}",
    "komisarenko2024.prop2.negative": f"{_BINARY_MAP}\n−0.8854 < γ < 0: an inverse sigmoid",
    "komisarenko2024.prop2.proper-part": f"L*(p, y) = L(p⁻¹(p), y)\n{_BINARY_MAP}",
    "komisarenko2024.prop3": "σ(s (γ+1 − log(γ+1)/2)) ≤ FC(s) ≤ σ(s (γ+1))   for s ≥ 0",
    "komisarenko2024.prop3.tight": "1/T(s) = logit FC(s) / s, from γ+1 − γ(2 log 2 − 1)/(1 + γ log 2) to γ+1",
    "komisarenko2024.bounds.gamma4": "T = 1/(γ+1) = 0.2,   T = 1/(γ+1 − log(γ+1)/2) = 0.238",
    "komisarenko2024.bounds.gamma4-numeric": "1/T(s) = logit FC(s) / s,   |s| ≤ 20,   γ = 4",
    "komisarenko2024.fit2": f"{_CLOSE}\n1/T ≈ 0.95 γ + 0.85   (K = 2)",
    "komisarenko2024.fit2.error": "max_s |FC_γ(s) − σ(s/T)| ≤ 0.00121",
    "komisarenko2024.fig2.temperatures": _CLOSE,
    "komisarenko2024.prop4": "pⱼ(q) = f(qⱼ) / Σₖ f(qₖ),   f(q) = 1 / ((1−q)^γ (γ log q / (1−q) − 1/q))",
    "komisarenko2024.prop4.same-map": f"p(q) = Ψ(q)\n{_PSI}",
    "komisarenko2024.fig4": "Σⱼ pⱼ L*ⱼ(q) is least at q = p",
    "komisarenko2024.prop5": "p(q)ⱼ ≥ qⱼ, j = argmax q:  for K ≤ 3, or max q ≥ τ_uc",
    "komisarenko2024.prop5.lemma": "1/L′(q) = −q / φ(q)",
    "komisarenko2024.sharpening": f"K = 3\n{_PSI}",
    "komisarenko2024.fig5.temperatures": _CLOSE,
    "komisarenko2024.fit3": f"{_CLOSE}\n1/T ≈ 0.64 γ + 0.91   (K = 3)",
    "komisarenko2024.fit3.error": "max_s |FC_γ(s) − softmax(s/T)|,   K = 3",
    "komisarenko2024.fit3.below-one": f"T(γ) < 1, falling in γ\n{_CLOSE}",
    "komisarenko2024.fig7": "|FC_γ(s) − softmax(s/T)|,   K = 3",
    "komisarenko2024.fit4": f"{_CLOSE}\n1/T ≈ 0.49 γ + 0.955   (K = 4)",
    "komisarenko2024.fts.def": f"Ψ(softmax(s/T)), with γ and T chosen together\n{_PSI}",
    "komisarenko2024.fts.grid": "γ ∈ {−0.5, −0.25, 0.05, 0.25, 0.37, 0.5, 0.75, 1, 5},   T ∈ {0.01, …, 5}",
    "komisarenko2024.table1.accuracy": "argmaxᵢ Ψᵢ(v) = argmaxᵢ vᵢ",
    "komisarenko2024.binary-vs-multiclass": _CLOSE,
    "komisarenko2024.search-3m": "T(γ) ≈ T₀ + (T₁ − T₀) γ,   T₀ and T₁ the best for γ = 0 and γ = 1",
}


def equation(claim: str) -> str:
    """The equation of a claim, one or more lines; empty if it has none.

    >>> equation("mukhoti2020.eq2")
    'MCE = maxᵢ |Aᵢ − Cᵢ|'
    """
    return EQUATIONS.get(claim, "")
