// recurrence_grad: from the last step to the first what each step's gates contribute; then the gradients of input and
// weights, one product over all steps each.
#include <optional>
#include <vector>

#include "common/scratch.h"
#include "elementwise/functions.h"
#include "matmul/gemm.h"
#include "nn/recurrence.h"
#include "runtime/families.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

using matmul::Product;

/// One row in one step; each pointer is to its first hidden unit.
template <class T>
struct Row {
    int64_t n;
    const T* given;     // the gradient of h from outside
    const T* gates;     // as they were saved
    const T *h, *h_before, *c, *c_before;
    T* g;               // the gradient of h from later steps; becomes the part of the gradient before that needs no product
    T* g_c;             // the same of c
    T *slopes, *of_state;  // by what the gates change: from the input's part, and of a GRU from the state's
};

template <class T, bool IS_TANH>
void rnn_row(const Row<T>& r) {
    const T *h = r.h, *given = r.given;
    T *g = r.g, *out = r.slopes;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < r.n; ++j) {
        const T total = g[j] + given[j];
        out[j] = IS_TANH ? total * (T(1) - h[j] * h[j]) : h[j] > T(0) ? total : T(0);
        g[j] = 0;
    }
}

template <class T>
void gru_row(const Row<T>& row) {
    const int64_t size = row.n;
    const T *rs = row.gates, *zs = rs + size, *ns = rs + 2 * size, *ss = rs + 3 * size, *before = row.h_before,
            *given = row.given;
    T *g = row.g, *of_r = row.slopes, *of_z = of_r + size, *of_n = of_r + 2 * size, *state_r = row.of_state,
      *state_z = state_r + size, *state_n = state_r + 2 * size;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < size; ++j) {
        const T total = g[j] + given[j], r = rs[j], z = zs[j], n = ns[j];
        const T by_n = total * (T(1) - z) * (T(1) - n * n), by_r = by_n * ss[j] * r * (T(1) - r);
        const T by_z = total * (before[j] - n) * z * (T(1) - z);
        of_r[j] = by_r, of_z[j] = by_z, of_n[j] = by_n;
        state_r[j] = by_r, state_z[j] = by_z, state_n[j] = by_n * r;
        g[j] = total * z;
    }
}

template <class T>
void lstm_row(const Row<T>& row) {
    const int64_t size = row.n;
    const T *is = row.gates, *fs = is + size, *gs = is + 2 * size, *os = is + 3 * size, *c = row.c, *before = row.c_before,
            *given = row.given;
    T *g_h = row.g, *g_c = row.g_c, *of_i = row.slopes, *of_f = of_i + size, *of_g = of_i + 2 * size,
      *of_o = of_i + 3 * size;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < size; ++j) {
        const T total = g_h[j] + given[j], i = is[j], f = fs[j], g = gs[j], o = os[j];
        const T now = math::tanh(c[j]), by_c = g_c[j] + total * o * (T(1) - now * now);
        of_i[j] = by_c * g * i * (T(1) - i);
        of_f[j] = by_c * before[j] * f * (T(1) - f);
        of_g[j] = by_c * i * (T(1) - g * g);
        of_o[j] = total * now * o * (T(1) - o);
        g_c[j] = by_c * f;
        g_h[j] = 0;
    }
}

template <class T>
class Backward final : public Kernel {
public:
    Backward(const Request& request, const Recurrence& r)
        : r_(r),
          products_(request, r, row_of(r)),
          product_(r.batch, r.hidden, r.width(), {row_of(r), 1}, {r.hidden, 1}, {r.hidden, 1}),
          zeros_(r.g_states < 0 ? size_t(r.hidden) : 0) {
        work = products_.work() + double(r.rows()) * row_ns<T>(r);
        const int64_t packed = packs(r) ? chunks_of<T>(r.hidden) * UNITS<T> * r.width() : 0;
        note_scratch((slopes_size() + std::max(packed, before_size())) * int64_t(sizeof(T)));
        switch (r.cell) {
            case Cell::rnn_tanh: row_ = rnn_row<T, true>; break;
            case Cell::rnn_relu: row_ = rnn_row<T, false>; break;
            case Cell::gru: row_ = gru_row<T>; break;
            case Cell::lstm: row_ = lstm_row<T>; break;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        const int64_t size = r_.batch * r_.hidden, all = r_.rows() * row_of(r_);
        const bool is_gru = r_.cell == Cell::gru;
        const Scratch<T> slopes(slopes_size());
        Call call{data, slopes.data(), is_gru ? slopes.data() + all : slopes.data(), into<T>(data, r_.for_hx),
                  into<T>(data, r_.for_cx)};
        const auto begin_with = [&](T* out, const T* given) {
            given ? std::copy_n(given, size, out) : std::fill_n(out, size, T(0));
        };
        begin_with(call.g, as<T>(data, r_.g_h));
        if (call.g_c) begin_with(call.g_c, as<T>(data, r_.g_c));
        packs(r_) ? run_packed(call) : run_plain(call);

        std::optional<Scratch<T>> room;
        T* before = into<T>(data, r_.hx);
        if (before_size()) {
            room.emplace(before_size());
            before = room->data();
            const int64_t rest = r_.reverse ? 0 : 1;
            std::copy_n(as<T>(data, r_.hx), size, before + r_.step(0) * size);
            std::copy_n(as<T>(data, r_.states) + (1 - rest) * size, (r_.steps - 1) * size, before + rest * size);
        }
        products_.run(data, reinterpret_cast<char*>(call.slopes), reinterpret_cast<char*>(call.of_state),
                      reinterpret_cast<char*>(before));
    }

private:
    int64_t slopes_size() const { return (r_.cell == Cell::gru ? 2 : 1) * r_.rows() * row_of(r_); }
    /// Of the states before each step.
    int64_t before_size() const { return products_.needs_states() && r_.steps > 1 ? r_.rows() * r_.hidden : 0; }

    /// From one row of slopes to the next: not a power of 2, for which rows would compete for the same part of a cache.
    static int64_t row_of(const Recurrence& r) { return r.width() + 64 / int64_t(sizeof(T)); }

    struct Call {
        char* const* data;
        T *slopes, *of_state;
        T *g, *g_c;
    };

    /// The gates of some rows in the step computed as number i. g: the first of these rows' gradients of h.
    void rows_of_step(const Call& call, int64_t i, int64_t top, int64_t bottom, T* g, int64_t g_row) const {
        const int64_t t = r_.step(i), h = r_.hidden, batch = r_.batch;
        char* const* data = call.data;
        const auto of = [&](int operand, int64_t step) {
            return operand < 0 ? nullptr : as<T>(data, operand) + step * batch * h;
        };
        const T *given = of(r_.g_states, t), *now = of(r_.states, t), *c = of(r_.saved_cells, t);
        const T *before = i ? of(r_.states, r_.step(i - 1)) : as<T>(data, r_.hx);
        const T *c_before = i ? of(r_.saved_cells, r_.step(i - 1)) : as<T>(data, r_.cx);
        const char* mask = as<char>(data, r_.mask);
        for (int64_t row = top; row < bottom; ++row, g += g_row) {
            const int64_t at = row * h, of_step = t * batch + row;
            T *slopes = call.slopes + of_step * row_of(r_), *of_state = call.of_state + of_step * row_of(r_);
            if (mask && !mask[of_step]) {
                std::fill_n(slopes, r_.width(), T(0));
                if (of_state != slopes) std::fill_n(of_state, r_.width(), T(0));
                if (given)
                    for (int64_t j = 0; j < h; ++j) g[j] += given[at + j];
                continue;
            }
            row_({h, given ? given + at : zeros_.data(),
                  r_.saved_gates < 0 ? nullptr : as<T>(data, r_.saved_gates) + of_step * 4 * h, now + at, before + at,
                  c ? c + at : nullptr, c_before ? c_before + at : nullptr, g, call.g_c ? call.g_c + at : nullptr, slopes,
                  of_state});
        }
    }

    const T* of_state_at(const Call& call, int64_t i) const {
        return call.of_state + r_.step(i) * r_.batch * row_of(r_);
    }

    void run_plain(const Call& call) const {
        const int64_t size = r_.batch * r_.hidden;
        const Scratch<T> sums(size);
        for (int64_t i = r_.steps; i-- > 0;) {
            rows_of_step(call, i, 0, r_.batch, call.g, r_.hidden);
            product_.run(of_state_at(call, i), as<T>(call.data, r_.weight_hh), sums.data());
            for (int64_t j = 0; j < size; ++j) call.g[j] += sums[j];
        }
    }

    void run_packed(const Call& call) const {
        constexpr int64_t U = UNITS<T>;
        const int64_t h = r_.hidden, chunks = chunks_of<T>(h), width = r_.width(), padded = chunks * U;
        const T* weight = as<T>(call.data, r_.weight_hh);
        const Scratch<T> weights(width * padded);
        parallel_for(chunks, double(width * U), [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c)
                matmul::pack_panel(weight + c * U, {h, 1}, width, std::min(U, h - c * U), weights.data() + c * width * U, U);
        });
        for_rows<T>(r_, [&](int64_t top, int64_t bottom) {
            const int64_t rows = bottom - top;
            const Scratch<T> g(rows * padded);  // rows of whole vectors
            for (int64_t row = 0; row < rows; ++row) {
                std::copy_n(call.g + (top + row) * h, h, g.data() + row * padded);
                std::fill_n(g.data() + row * padded + h, padded - h, T(0));
            }
            for (int64_t i = r_.steps; i-- > 0;) {
                rows_of_step(call, i, top, bottom, g.data(), padded);
                const T* slopes = of_state_at(call, i) + top * row_of(r_);
                parallel_for(chunks, double(rows) * row_ns<T>(r_) / double(chunks), [&](int64_t begin, int64_t end) {
                    for (int64_t c = begin; c < end; ++c) {
                        T* out = g.data() + c * U;
                        multiply_panel(slopes, row_of(r_), rows, width, weights.data() + c * width * U, out, padded, out, padded);
                    }
                });
            }
            for (int64_t row = 0; row < rows; ++row) std::copy_n(g.data() + row * padded, h, call.g + (top + row) * h);
        });
    }

    Recurrence r_;
    RecurrenceProducts products_;
    Product<T> product_;
    void (*row_)(const Row<T>&);
    std::vector<T> zeros_;  // in place of a gradient that there is none of: a vector load that is masked out takes ages
};

}  // namespace

[[gnu::cold]] KernelPtr recurrence_grad(const Request& request) {
    Recurrence r;
    if (!read_recurrence_grad(request, &r)) return nullptr;
    if (r.dtype == DType::f32) return std::make_unique<Backward<float>>(request, r);
    if (r.dtype == DType::f64) return std::make_unique<Backward<double>>(request, r);
    return nullptr;
}

}  // namespace norch::nn
