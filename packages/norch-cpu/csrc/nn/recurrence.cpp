// recurrence: an RNN, GRU or LSTM over all steps in one direction. The input's products of all steps are one product.
#include "nn/recurrence.h"

#include <optional>

#include "common/scratch.h"
#include "elementwise/functions.h"
#include "matmul/gemm.h"
#include "runtime/families.h"
#include "runtime/simd.h"

namespace norch::nn {
namespace {

using matmul::Product;

/// Some units of one row. Gate g of unit j is at s[g * s_gate + j]: the state's part with the input's, but of a GRU's n.
template <class T>
struct Units {
    int64_t n;
    const T* s;
    int64_t s_gate;
    const T* x;  // the input's part of a GRU's n
    const T *h_before, *c_before;
    T *h, *c;
    T* saved;  // the gates, hidden size apart; null where they are not wanted
    int64_t saved_gate;
};

template <class T, bool IS_TANH>
void rnn_units(const Units<T>& u) {
    const T* s = u.s;
    T* h = u.h;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        if constexpr (IS_TANH)
            h[j] = math::tanh(s[j]);
        else
            h[j] = s[j] > T(0) || s[j] != s[j] ? s[j] : T(0);
    }
}

template <class T, bool SAVES>
void gru_units(const Units<T>& u) {
    const T *x = u.x, *sr = u.s, *sz = sr + u.s_gate, *sn = sz + u.s_gate, *before = u.h_before;
    T *h = u.h, *out_r = u.saved, *out_z = out_r + u.saved_gate, *out_n = out_z + u.saved_gate,
      *out_s = out_n + u.saved_gate;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        const T r = math::sigmoid(sr[j]), z = math::sigmoid(sz[j]), from_state = sn[j];
        const T n = math::tanh(x[j] + r * from_state);
        h[j] = n + z * (before[j] - n);
        if constexpr (SAVES) out_r[j] = r, out_z[j] = z, out_n[j] = n, out_s[j] = from_state;
    }
}

template <class T, bool SAVES>
void lstm_units(const Units<T>& u) {
    const T *si = u.s, *sf = si + u.s_gate, *sg = sf + u.s_gate, *so = sg + u.s_gate, *before = u.c_before;
    T *h = u.h, *c = u.c, *out_i = u.saved, *out_f = out_i + u.saved_gate, *out_g = out_f + u.saved_gate,
      *out_o = out_g + u.saved_gate;
    NORCH_INDEPENDENT
    for (int64_t j = 0; j < u.n; ++j) {
        const T i = math::sigmoid(si[j]), f = math::sigmoid(sf[j]), g = math::tanh(sg[j]), o = math::sigmoid(so[j]);
        const T next = f * before[j] + i * g;
        c[j] = next;
        h[j] = o * math::tanh(next);
        if constexpr (SAVES) out_i[j] = i, out_f[j] = f, out_g[j] = g, out_o[j] = o;
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
        const int64_t packed = packs(r) ? chunks_of<T>(r.hidden) * UNITS<T> * r.gates * r.hidden : 0;
        note_scratch((room_size() + packed) * int64_t(sizeof(T)));
        switch (r.cell) {
            case Cell::rnn_tanh: units_ = rnn_units<T, true>; break;
            case Cell::rnn_relu: units_ = rnn_units<T, false>; break;
            case Cell::gru: units_ = saves_ ? gru_units<T, true> : gru_units<T, false>; break;
            case Cell::lstm: units_ = saves_ ? lstm_units<T, true> : lstm_units<T, false>; break;
        }
    }

    void run(char* const* data, const Scalar*) const override {
        const bool in_gates = saves_ && r_.is_lstm();
        std::optional<Scratch<T>> room;
        if (room_size()) room.emplace(room_size());
        Call call{into<T>(data, r_.states < 0 ? r_.h : r_.states), nullptr, as<T>(data, r_.hx), as<T>(data, r_.cx),
                  into<T>(data, r_.saved_cells), into<T>(data, r_.c), into<T>(data, r_.saved_gates),
                  as<T>(data, r_.weight_hh), as<T>(data, r_.bias_hh), as<char>(data, r_.mask)};
        call.x = room ? room->data() : in_gates ? into<T>(data, r_.saved_gates) : call.states;
        std::optional<Scratch<T>> biases;
        if (call.bias && r_.cell != Cell::gru) {  // both at once
            biases.emplace(r_.width());
            const T* other = as<T>(data, r_.bias_ih);
            for (int64_t j = 0; j < r_.width(); ++j) biases->data()[j] = call.bias[j] + other[j];
            call.bias = nullptr;
        }
        char* operands[] = {reinterpret_cast<char*>(call.x), data[r_.input], data[r_.weight_ih],
                            biases ? reinterpret_cast<char*>(biases->data()) : r_.bias_ih < 0 ? nullptr : data[r_.bias_ih]};
        of_input_->run(operands, nullptr);
        packs(r_) ? run_packed(call) : run_plain(call);
        const int64_t last = r_.step(r_.steps - 1), size = r_.batch * r_.hidden;
        if (r_.states >= 0) std::copy_n(call.states + last * size, size, into<T>(data, r_.h));
        if (call.cells) std::copy_n(call.cells + last * size, size, call.c);
    }

private:
    /// Of the input's part of the gates. They replace it where both have the same room, as an RNN's states do.
    int64_t room_size() const { return (saves_ && r_.is_lstm()) || r_.gates == 1 ? 0 : r_.rows() * r_.width(); }

    struct Call {
        T* states;
        T* x;  // the input's part of the gates
        const T *hx, *cx;
        T *cells, *c;  // of all steps, if they are wanted, and the last ones
        T* saved;      // the gates
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
            units_({n, sums, sums_gate, r_.cell == Cell::gru ? x_of(call, of_step, 2) + unit : nullptr, h_before + at,
                    c_before ? c_before + at : nullptr, state, c ? c + at : nullptr,
                    call.saved ? call.saved + of_step * 4 * h + unit : nullptr, h});
        }
    }

    const T* x_of(const Call& call, int64_t of_step, int64_t gate) const {
        return call.x + (of_step * r_.gates + gate) * r_.hidden;
    }

    /// Whether the input's part of a gate is simply added to the state's.
    bool is_added(int64_t gate) const { return r_.cell != Cell::gru || gate < 2; }

    /// sums += the input's part of units [unit, unit + n).
    void add_input(const Call& call, int64_t i, int64_t top, int64_t bottom, int64_t unit, int64_t n, T* sums,
                   int64_t sums_row, int64_t sums_gate) const {
        for (int64_t row = top; row < bottom; ++row)
            for (int64_t g = 0; g < r_.gates && is_added(g); ++g) {
                const T* x = x_of(call, r_.step(i) * r_.batch + row, g) + unit;
                T* sum = sums + (row - top) * sums_row + g * sums_gate;
                NORCH_INDEPENDENT
                for (int64_t j = 0; j < n; ++j) sum[j] += x[j];
            }
    }

    /// With the weights as they lie.
    void run_plain(const Call& call) const {
        const Scratch<T> sums(r_.batch * r_.width());
        for (int64_t i = 0; i < r_.steps; ++i) {
            product_.run(before(call.hx, call.states, i), call.weight, sums.data(), {call.bias, nullptr});
            add_input(call, i, 0, r_.batch, 0, r_.hidden, sums.data(), r_.width(), r_.hidden);
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
                        // Sums begin with the input's part where that has whole vectors.
                        const bool is_whole = (c + 1) * U <= h;
                        for (int64_t g = 0; g < gates; ++g) {
                            const bool with_input = is_whole && is_added(g) && !call.bias;
                            const T* start = with_input ? x_of(call, r_.step(i) * r_.batch + top, g) + c * U
                                                        : biases.data() + (c * gates + g) * U;
                            multiply_panel(h_before, h, bottom - top, h, weights.data() + (c * gates + g) * panel, start,
                                           with_input ? r_.width() : 0, sums.data() + g * U, gates * U);
                        }
                        if (!is_whole || call.bias)
                            add_input(call, i, top, bottom, c * U, std::min(U, h - c * U), sums.data(), gates * U, U);
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

[[gnu::cold]] KernelPtr recurrence(const Request& request) {
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
