// One hidden unit of a recurrent layer in one step, forward and backward.
#pragma once

#include "common/recurrence.h"
#include "runtime/type_groups.cuh"

namespace norch::nn {

/// A group's elements in memory.
template <class Group>
struct Elements {
    using C = computed<Group>;

    DType dtype;
    __device__ C load(const void* p, int64_t i) const {
        C x;
        with_type<Group>(dtype, [&]<class T>(Tag<T>) { x = C(upcast(__ldcg(static_cast<const T*>(p) + i))); });
        return x;
    }
    __device__ void store(void* p, int64_t i, C x) const {
        with_type<Group>(dtype, [&]<class T>(Tag<T>) { static_cast<T*>(p)[i] = downcast<T>(x); });
    }
};

template <class C>
__device__ inline C sigmoid_of(C x) {
    return C(1) / (C(1) + ::exp(-x));
}

/// What is saved for the gradient: i, f, g, o of an LSTM; r, z, n and the state's part of n of a GRU.
template <class C>
struct Unit {
    C gates[4];
    C h, c;
};

/// x, s: the input's and the state's part of the gates. h and c are those before.
template <class C>
__device__ inline Unit<C> next_unit(Cell cell, const C* x, const C* s, C h, C c) {
    Unit<C> out;
    if (cell == Cell::lstm) {
        const C i = sigmoid_of(x[0] + s[0]), f = sigmoid_of(x[1] + s[1]), g = ::tanh(x[2] + s[2]);
        const C o = sigmoid_of(x[3] + s[3]), now = f * c + i * g;
        out = {{i, f, g, o}, o * ::tanh(now), now};
    } else if (cell == Cell::gru) {
        const C r = sigmoid_of(x[0] + s[0]), z = sigmoid_of(x[1] + s[1]), n = ::tanh(x[2] + r * s[2]);
        out = {{r, z, n, s[2]}, n + z * (h - n), C(0)};
    } else {
        const C total = x[0] + s[0];
        out = {{}, cell == Cell::rnn_tanh ? C(::tanh(total)) : total > C(0) || total != total ? total : C(0), C(0)};
    }
    return out;
}

/// What a unit's gates contribute, and what goes to the step before besides the product with the weights.
template <class C>
struct Slopes {
    C gates[4];  // through the input's part
    C state;     // the last one through the state's part, where it differs
    C g, g_c;
};

/// g, g_c: the gradients of h and c after the step.
template <class C>
__device__ inline Slopes<C> unit_slopes(Cell cell, const C* gates, C h, C h_before, C c, C c_before, C g, C g_c) {
    if (cell == Cell::lstm) {
        const C i = gates[0], f = gates[1], n = gates[2], o = gates[3], now = ::tanh(c);
        const C by_c = g_c + g * o * (C(1) - now * now);
        return {{by_c * n * i * (C(1) - i), by_c * c_before * f * (C(1) - f), by_c * i * (C(1) - n * n),
                 g * now * o * (C(1) - o)}, C(0), C(0), by_c * f};
    }
    if (cell == Cell::gru) {
        const C r = gates[0], z = gates[1], n = gates[2], by_n = g * (C(1) - z) * (C(1) - n * n);
        return {{by_n * gates[3] * r * (C(1) - r), g * (h_before - n) * z * (C(1) - z), by_n, C(0)}, by_n * r, g * z, C(0)};
    }
    const C slope = cell == Cell::rnn_tanh ? g * (C(1) - h * h) : h > C(0) ? g : C(0);
    return {{slope, C(0), C(0), C(0)}, slope, C(0), C(0)};
}

/// The memory of a layer's call. Of all steps: x, states, gates, cells, given, slopes; of one: the others.
struct LayerMemory {
    Cell cell;
    DType dtype;
    int gates;
    bool reverse;
    int64_t steps, batch, hidden;
    const char* mask;
    const void *weight, *bias;  // of the state's part
    const void *hx, *cx;
    void* states;
    // Forward: x becomes the gates where both are the same memory.
    const void* x;
    void *saved, *cells, *c;  // saved and cells may be null; c is the last step's
    // Backward.
    const void* given;  // the gradients of states, or null
    void *of_input, *of_state;
    const void *g_h, *g_c;  // those of the last states, or null
    void *for_hx, *for_cx;

    __device__ int64_t step(int64_t i) const { return reverse ? steps - 1 - i : i; }
    __device__ int64_t elements() const { return batch * hidden; }
};

/// Unit `unit` of row `row` in the step computed as number i. s: the state's part of its gates, with the bias. c: before and
/// after. Returns the new h.
template <class Group>
__device__ inline computed<Group> forward_unit(const LayerMemory& a, int64_t i, int64_t row, int64_t unit,
                                               const computed<Group>* x, const computed<Group>* s, computed<Group>& c) {
    using C = computed<Group>;
    const Elements<Group> e{a.dtype};
    const int64_t at = row * a.hidden + unit, t = a.step(i), of_step = t * a.batch + row;
    const C before = i ? e.load(a.states, a.step(i - 1) * a.elements() + at) : e.load(a.hx, at);
    C h = before;
    if (!a.mask || a.mask[of_step]) {
        const Unit<C> now = next_unit(a.cell, x, s, before, c);
        h = now.h, c = now.c;
        if (a.saved)
            for (int g = 0; g < 4; ++g) e.store(a.saved, (of_step * 4 + g) * a.hidden + unit, now.gates[g]);
    }
    e.store(a.states, t * a.elements() + at, h);
    if (a.cells) e.store(a.cells, t * a.elements() + at, c);
    return h;
}

/// The same backward. g, g_c: the gradients of h and c after the step, then what of those before needs no product.
template <class Group>
__device__ inline void backward_unit(const LayerMemory& a, int64_t i, int64_t row, int64_t unit, computed<Group>& g,
                                     computed<Group>& g_c) {
    using C = computed<Group>;
    const Elements<Group> e{a.dtype};
    const int64_t at = row * a.hidden + unit, t = a.step(i), of_step = t * a.batch + row, all = a.elements();
    if (a.given) g += e.load(a.given, t * all + at);
    Slopes<C> s = {{}, C(0), g, g_c};
    if (!a.mask || a.mask[of_step]) {
        const int64_t t_before = i ? a.step(i - 1) : 0;
        C gates[4] = {}, c = 0, c_before = 0;
        if (a.saved)
            for (int k = 0; k < 4; ++k) gates[k] = e.load(a.saved, (of_step * 4 + k) * a.hidden + unit);
        if (a.cells) c = e.load(a.cells, t * all + at), c_before = i ? e.load(a.cells, t_before * all + at) : e.load(a.cx, at);
        const C h_before = a.cell != Cell::gru ? C(0) : i ? e.load(a.states, t_before * all + at) : e.load(a.hx, at);
        const C h = a.gates == 1 ? e.load(a.states, t * all + at) : C(0);
        s = unit_slopes(a.cell, gates, h, h_before, c, c_before, g, g_c);
    }
    for (int k = 0; k < a.gates; ++k) {
        const int64_t place = (of_step * a.gates + k) * a.hidden + unit;
        e.store(a.of_input, place, s.gates[k]);
        if (a.of_state != a.of_input) e.store(a.of_state, place, k == 2 ? s.state : s.gates[k]);
    }
    g = s.g, g_c = s.g_c;
}

/// All steps in one kernel, whose blocks keep the weights. They return false where that does not fit.
bool run_steps(const LayerMemory& a);
bool run_steps_backward(const LayerMemory& a);

}  // namespace norch::nn
