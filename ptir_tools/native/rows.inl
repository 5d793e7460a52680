/* Layer norm, row by row. Sums have SUMS parts, so that vectors of any width give the same. */

/* A row in float64: one whose squares leave the range of f32. */
static void normalized_exactly(float *out, const float *x, const float *gamma, const float *beta, size_t n, double epsilon)
{
    double mean = 0.0, variance = 0.0;
    for (size_t i = 0; i < n; i++)
        mean += x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean);
    double root = sqrt(variance / (double)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((x[i] - mean) / root * gamma[i] + beta[i]);
}

/* out = (x - mean) / sqrt(variance + epsilon) * gamma + beta for dense rows of n elements. */
static void layer_norm(float *out, const float *from, const float *gamma, const float *beta, size_t rows, size_t n, double epsilon,
                       ptir_watch *watch)
{
    const float share = 1.0f / (float)n;
    const size_t columns = n / LANES * LANES;
    for (size_t row = 0; row < rows; row++, from += n, out += n) {
        float sums[SUMS], squares[SUMS], total = 0.0f, rest = 0.0f, square_sum = 0.0f;
        if (is_stopped(watch, 4 * n))
            return;
        fill(sums, SUMS, 0.0f);
        quick_reduce(PTIR_reduce_sum, sums, from, columns);
        for (size_t i = columns; i < n; i++)
            total += from[i];
        const float mean = (reduced(PTIR_reduce_sum, sums) + total) * share;
        fill(sums, SUMS, 0.0f);
        fill(squares, SUMS, 0.0f);
        for (size_t i = 0; i < columns; i += SUMS)
            for (size_t k = 0; k < SUMS; k += W) {
                floats d = VECTOR(from + i + k, 0) - mean;
                *(floats *)(sums + k) += d;
                *(floats *)(squares + k) += d * d;
            }
        for (size_t i = columns; i < n; i++) {
            float d = from[i] - mean;
            rest += d;
            square_sum += d * d;
        }
        /* How far the mean was rounded, and what that takes off the squares. */
        const float off = (reduced(PTIR_reduce_sum, sums) + rest) * share;
        const float variance = (reduced(PTIR_reduce_sum, squares) + square_sum) * share - off * off + (float)epsilon;
        if (!(variance >= 0x1p-100f && variance < INFINITY)) {
            normalized_exactly(out, from, gamma, beta, n, epsilon);
            continue;
        }
        const float scale = 1.0f / sqrtf(variance);
        for (size_t i = 0; i < columns; i += W)
            *(floats *)(out + i) = ((VECTOR(from + i, 0) - mean) - off) * scale * VECTOR(gamma + i, 0) + VECTOR(beta + i, 0);
        for (size_t i = columns; i < n; i++)
            out[i] = ((from[i] - mean) - off) * scale * gamma[i] + beta[i];
    }
}
