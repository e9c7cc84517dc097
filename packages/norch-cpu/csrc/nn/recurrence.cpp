// recurrence: an RNN, GRU or LSTM over all steps in one direction. The input's products of all steps are one product.
#include "nn/recurrence.h"

#include <optional>

#include "elementwise/functions.h"
#include "matmul/gemm.h"
#include "runtime/families.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

using matmul::Product;

/// Some units of one row: the input's part of the gates, which becomes the gates themselves where they are saved, and
/// the state's part. Gate g of unit j is at x[g * x_gate + j] and s[g * s_gate + j].
template <class T>
struct Units {
    int64_t n;
    T* x;
    int64_t x_gate;
    const T* s;
    int64_t s_gate;
    const T *h_before, *c_before;
    T *h, *c;
    T* saved;  // the gates of a GRU, hidden size apart; null where they are not wanted
    int64_t saved_gate;
};

template <class T, bool IS_TANH>
void rnn_units(const Units<T>& u) {
    const T *x = u.x, *s = u.s;
    T* h = u.h;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        const T total = x[j] + s[j];
        if constexpr (IS_TANH)
            h[j] = math::tanh(total);
        else
            h[j] = total > T(0) || total != total ? total : T(0);
    }
}

template <class T, bool SAVES>
void gru_units(const Units<T>& u) {
    const T *xr = u.x, *xz = u.x + u.x_gate, *xn = u.x + 2 * u.x_gate;
    const T *sr = u.s, *sz = u.s + u.s_gate, *sn = u.s + 2 * u.s_gate, *before = u.h_before;
    T *h = u.h, *out_r = u.saved, *out_z = u.saved + u.saved_gate, *out_n = u.saved + 2 * u.saved_gate,
      *out_s = u.saved + 3 * u.saved_gate;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        const T r = math::sigmoid(xr[j] + sr[j]), z = math::sigmoid(xz[j] + sz[j]), from_state = sn[j];
        const T n = math::tanh(xn[j] + r * from_state);
        h[j] = n + z * (before[j] - n);
        if constexpr (SAVES) out_r[j] = r, out_z[j] = z, out_n[j] = n, out_s[j] = from_state;
    }
}

template <class T, bool SAVES>
void lstm_units(const Units<T>& u) {
    T *xi = u.x, *xf = u.x + u.x_gate, *xg = u.x + 2 * u.x_gate, *xo = u.x + 3 * u.x_gate;
    const T *si = u.s, *sf = u.s + u.s_gate, *sg = u.s + 2 * u.s_gate, *so = u.s + 3 * u.s_gate, *before = u.c_before;
    T *h = u.h, *c = u.c;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        const T i = math::sigmoid(xi[j] + si[j]), f = math::sigmoid(xf[j] + sf[j]);
        const T g = math::tanh(xg[j] + sg[j]), o = math::sigmoid(xo[j] + so[j]);
        const T next = f * before[j] + i * g;
        c[j] = next;
        h[j] = o * math::tanh(next);
        if constexpr (SAVES) xi[j] = i, xf[j] = f, xg[j] = g, xo[j] = o;
    }
}

template <class T>
class Forward final : public Kernel {
public:
    Forward(const Request& request, const Recurrence& r)
        : r_(r),
          of_input_(input_gates(request, r)),
          product_(r.batch, r.width(), r.hidden, {r.hidden, 1}, {1, r.hidden}, {r.width(), 1}),
          saves_(r.saved_gates >= 0) {
        work = of_input_->work + double(r.rows()) * row_ns<T>(r);
        switch (r.cell) {
            case Cell::rnn_tanh: units_ = rnn_units<T, true>; break;
            case Cell::rnn_relu: units_ = rnn_units<T, false>; break;
            case Cell::gru: units_ = saves_ ? gru_units<T, true> : gru_units<T, false>; break;
            case Cell::lstm: units_ = saves_ ? lstm_units<T, true> : lstm_units<T, false>; break;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        // The gates replace the input's part of them where both have the same room, as an RNN's states do.
        const bool in_gates = saves_ && r_.is_lstm(), in_states = r_.gates == 1;
        std::optional<Scratch<T>> room;
        if (!in_gates && !in_states) room.emplace(r_.rows() * r_.width());
        Call call{into<T>(data, r_.states < 0 ? r_.h : r_.states), nullptr, as<T>(data, r_.hx), as<T>(data, r_.cx),
                  into<T>(data, r_.saved_cells), into<T>(data, r_.c), r_.is_lstm() ? nullptr : into<T>(data, r_.saved_gates),
                  as<T>(data, r_.weight_hh), as<T>(data, r_.bias_hh), as<char>(data, r_.mask)};
        call.x = room ? room->data() : in_gates ? into<T>(data, r_.saved_gates) : call.states;
        char* operands[] = {reinterpret_cast<char*>(call.x), data[r_.input], data[r_.weight_ih],
                            r_.bias_ih < 0 ? nullptr : data[r_.bias_ih]};
        of_input_->run(operands, nullptr);
        packs(r_) ? run_packed(call) : run_plain(call);
        const int64_t last = r_.step(r_.steps - 1), size = r_.batch * r_.hidden;
        if (r_.states >= 0) std::copy_n(call.states + last * size, size, into<T>(data, r_.h));
        if (call.cells) std::copy_n(call.cells + last * size, size, call.c);
    }

private:
    struct Call {
        T* states;
        T* x;  // the input's part of the gates
        const T *hx, *cx;
        T *cells, *c;  // of all steps, if they are wanted, and the last ones
        T* saved;      // of a GRU
        const T *weight, *bias;
        const char* mask;
    };

    const T* before(const T* first, const T* all, int64_t i) const {
        return i ? all + r_.step(i - 1) * r_.batch * r_.hidden : first;
    }

    /// Units [unit, unit + n) of some rows in step i. sums: the state's part of the first of them.
    void finish(const Call& call, int64_t i, int64_t top, int64_t bottom, int64_t unit, int64_t n, const T* sums,
                int64_t sums_row, int64_t sums_gate) const {
        const int64_t t = r_.step(i), h = r_.hidden;
        const T *h_before = before(call.hx, call.states, i), *c_before = call.cx;
        T* c = call.c;
        if (call.cells)
            c_before = before(call.cx, call.cells, i), c = call.cells + t * r_.batch * h;
        else if (i)
            c_before = call.c;
        for (int64_t row = top; row < bottom; ++row, sums += sums_row) {
            const int64_t at = row * h + unit, of_step = t * r_.batch + row;
            T* state = call.states + of_step * h + unit;
            if (call.mask && !call.mask[of_step]) {
                std::copy_n(h_before + at, n, state);
                if (c && c + at != c_before + at) std::copy_n(c_before + at, n, c + at);
                continue;
            }
            units_({n, call.x + of_step * r_.width() + unit, h, sums, sums_gate, h_before + at,
                    c_before ? c_before + at : nullptr, state, c ? c + at : nullptr,
                    call.saved ? call.saved + of_step * 4 * h + unit : nullptr, h});
        }
    }

    /// With the weights as they lie.
    void run_plain(const Call& call) const {
        const Scratch<T> sums(r_.batch * r_.width());
        for (int64_t i = 0; i < r_.steps; ++i) {
            product_.run(before(call.hx, call.states, i), call.weight, sums.data(), {call.bias, nullptr});
            finish(call, i, 0, r_.batch, 0, r_.hidden, sums.data(), r_.width(), r_.hidden);
        }
    }

    void run_packed(const Call& call) const {
        constexpr int64_t U = UNITS<T>;
        const int64_t h = r_.hidden, chunks = chunks_of<T>(h), panel = h * U, gates = r_.gates;
        const Scratch<T> weights(chunks * gates * panel), biases(chunks * gates * U);
        parallel_for(chunks, double(gates * panel), [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c)
                for (int64_t g = 0; g < gates; ++g) {
                    const int64_t width = std::min(U, h - c * U), first = g * h + c * U, at = c * gates + g;
                    matmul::pack_panel(call.weight + first * h, {1, h}, h, width, weights.data() + at * panel, U);
                    std::fill_n(biases.data() + at * U, U, T(0));
                    if (call.bias) std::copy_n(call.bias + first, width, biases.data() + at * U);
                }
        });
        for_rows<T>(r_, [&](int64_t top, int64_t bottom) {
            for (int64_t i = 0; i < r_.steps; ++i) {
                const T* h_before = before(call.hx, call.states, i) + top * h;
                parallel_for(chunks, double(bottom - top) * row_ns<T>(r_) / double(chunks), [&](int64_t begin, int64_t end) {
                    const Scratch<T> sums((bottom - top) * gates * U);
                    for (int64_t c = begin; c < end; ++c) {
                        for (int64_t g = 0; g < gates; ++g)
                            multiply_panel(h_before, h, bottom - top, h, weights.data() + (c * gates + g) * panel,
                                           biases.data() + (c * gates + g) * U, 0, sums.data() + g * U, gates * U);
                        finish(call, i, top, bottom, c * U, std::min(U, h - c * U), sums.data(), gates * U, U);
                    }
                });
            }
        });
    }

    Recurrence r_;
    KernelPtr of_input_;
    Product<T> product_;
    bool saves_;
    void (*units_)(const Units<T>&);
};

KernelPtr recurrence(const Request& request) {
    Recurrence r;
    if (!read_recurrence(request, &r)) return nullptr;
    if (r.dtype == DType::f32) return std::make_unique<Forward<float>>(request, r);
    if (r.dtype == DType::f64) return std::make_unique<Forward<double>>(request, r);
    return nullptr;
}

}  // namespace

void add_recurrence(Registry& registry) {
    registry["recurrence"] = recurrence;
    registry["recurrence_grad"] = recurrence_grad;
}

}  // namespace norch::nn
