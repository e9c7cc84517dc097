// recurrence and its gradient. Many steps are one kernel; one step, or weights that are too large for that, a product and a
// kernel each.
#include <optional>

#include "common/operands.h"
#include "common/product.h"
#include "nn/recurrence.cuh"
#include "runtime/allocator.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

/// sums: the state's part of the gates, (batch, gates, hidden), in the layer's dtype, with the bias. c: in place after the
/// first step, unless cells of all steps are kept.
template <class Group>
__global__ void __launch_bounds__(THREADS) step_kernel(const LayerMemory a, const void* sums, int64_t i) {
    using C = computed<Group>;
    const Elements<Group> e{a.dtype};
    const int64_t at = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (at >= a.elements()) return;
    const int64_t row = at / a.hidden, unit = at % a.hidden, of_step = a.step(i) * a.batch + row;
    C x[4] = {}, s[4] = {}, c = 0;
    for (int g = 0; g < a.gates; ++g) {
        x[g] = e.load(a.x, (of_step * a.gates + g) * a.hidden + unit);
        s[g] = e.load(sums, (row * a.gates + g) * a.hidden + unit);
    }
    if (a.cell == Cell::lstm)
        c = i == 0 ? e.load(a.cx, at) : a.cells ? e.load(a.cells, a.step(i - 1) * a.elements() + at) : e.load(a.c, at);
    forward_unit<Group>(a, i, row, unit, x, s, c);
    if (a.cell == Cell::lstm) e.store(a.c, at, c);
}

/// The gradients after the step are for_hx (what needs no product) + sums, and for_cx; both are replaced by those before.
template <class Group>
__global__ void __launch_bounds__(THREADS) step_back_kernel(const LayerMemory a, const void* sums, int64_t i) {
    using C = computed<Group>;
    const Elements<Group> e{a.dtype};
    const int64_t at = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (at >= a.elements()) return;
    const bool is_last = i == a.steps - 1;
    C g = !is_last ? e.load(a.for_hx, at) + e.load(sums, at) : a.g_h ? e.load(a.g_h, at) : C(0), g_c = 0;
    if (a.cell == Cell::lstm) g_c = !is_last ? e.load(a.for_cx, at) : a.g_c ? e.load(a.g_c, at) : C(0);
    if (i >= 0) backward_unit<Group>(a, i, at / a.hidden, at % a.hidden, g, g_c);
    e.store(a.for_hx, at, g);
    if (a.cell == Cell::lstm) e.store(a.for_cx, at, g_c);
}

void copy_bytes(void* to, const void* from, int64_t nbytes) {
    check(cudaMemcpyAsync(to, from, size_t(nbytes), cudaMemcpyDeviceToDevice, stream_handle()), "a recurrent layer");
}

LayerMemory memory_of(const Recurrence& r, char* const* data) {
    const auto at = [&](int operand) { return operand < 0 ? nullptr : data[operand]; };
    LayerMemory a = {};
    a.cell = r.cell, a.dtype = r.dtype, a.gates = int(r.gates), a.reverse = r.reverse;
    a.steps = r.steps, a.batch = r.batch, a.hidden = r.hidden;
    a.mask = at(r.mask), a.weight = at(r.weight_hh), a.bias = at(r.bias_hh), a.hx = at(r.hx), a.cx = at(r.cx);
    a.states = at(r.states < 0 ? r.h : r.states);
    a.saved = at(r.saved_gates), a.cells = at(r.saved_cells), a.c = at(r.c);
    a.given = at(r.g_states), a.g_h = at(r.g_h), a.g_c = at(r.g_c), a.for_hx = at(r.for_hx), a.for_cx = at(r.for_cx);
    return a;
}

class Forward final : public Kernel {
public:
    Forward(const Request& request, const Recurrence& r) : r_(r), of_input_(input_gates(request, r)) {
        const Operand* bias = r.bias_hh < 0 ? nullptr : &request.operands[size_t(r.bias_hh)];
        of_state_ = matmul::product_kernel(matrix(r.dtype, r.batch, r.width()), matrix(r.dtype, r.batch, r.hidden),
                                           transposed(request.operands[size_t(r.weight_hh)]), bias);
    }

    void run(char* const* data, const Scalar*) const override {
        LayerMemory a = memory_of(r_, data);
        const int64_t size = size_of(r_.dtype), step = r_.batch * r_.hidden * size;
        // The gates replace the input's part of them where both have the same room, as an RNN's states do.
        std::optional<Scratch<>> room;
        const bool in_gates = a.saved && r_.is_lstm();
        if (!in_gates && r_.gates != 1) room.emplace(size_t(r_.rows() * r_.width() * size));
        a.x = room ? room->data() : in_gates ? a.saved : a.states;
        char* operands[] = {static_cast<char*>(const_cast<void*>(a.x)), data[r_.input], data[r_.weight_ih],
                            r_.bias_ih < 0 ? nullptr : data[r_.bias_ih]};
        of_input_->run(operands, nullptr);
        if (r_.steps == 1 || !run_steps(a)) run_one_by_one(a);
        if (r_.states >= 0) copy_bytes(data[r_.h], data[r_.states] + r_.step(r_.steps - 1) * step, step);
    }

private:
    void run_one_by_one(const LayerMemory& a) const {
        const int64_t size = size_of(r_.dtype), step = r_.batch * r_.hidden * size;
        const Scratch<> sums(size_t(r_.batch * r_.width() * size));
        for (int64_t i = 0; i < r_.steps; ++i) {
            char* const states = static_cast<char*>(a.states);
            char* const before = i ? states + r_.step(i - 1) * step : static_cast<char*>(const_cast<void*>(a.hx));
            char* operands[] = {sums.data(), before, static_cast<char*>(const_cast<void*>(a.weight)),
                                static_cast<char*>(const_cast<void*>(a.bias))};
            of_state_->run(operands, nullptr);
            visit_floating_groups(r_.dtype, [&]<class Group>(Tag<Group>) {
                launch_kernel("a step of a recurrent layer", step_kernel<Group>,
                              unsigned(ceil_div(r_.batch * r_.hidden, THREADS)), THREADS, a,
                              static_cast<const void*>(sums.data()), i);
            });
        }
    }

    Recurrence r_;
    KernelPtr of_input_, of_state_;
};

class Backward final : public Kernel {
public:
    Backward(const Request& request, const Recurrence& r) : r_(r), products_(request, r) {
        of_state_ = matmul::product_kernel(matrix(r.dtype, r.batch, r.hidden), matrix(r.dtype, r.batch, r.width()),
                                           request.operands[size_t(r.weight_hh)]);
    }

    void run(char* const* data, const Scalar*) const override {
        LayerMemory a = memory_of(r_, data);
        const int64_t size = size_of(r_.dtype), step = r_.batch * r_.hidden * size, all = r_.rows() * r_.width() * size;
        const bool is_gru = r_.cell == Cell::gru;
        const Scratch<> slopes(size_t(is_gru ? 2 * all : all));
        a.of_input = slopes.data(), a.of_state = is_gru ? slopes.data() + all : slopes.data();
        if (r_.steps == 1 || !run_steps_backward(a)) run_one_by_one(a);
        std::optional<Scratch<>> room;
        char* before = data[r_.hx];
        if (products_.needs_states() && r_.steps > 1) {
            room.emplace(size_t(r_.steps * step));
            before = room->data();
            const int64_t rest = r_.reverse ? 0 : 1;
            copy_bytes(before + r_.step(0) * step, data[r_.hx], step);
            copy_bytes(before + rest * step, data[r_.states] + (1 - rest) * step, (r_.steps - 1) * step);
        }
        products_.run(data, static_cast<char*>(a.of_input), static_cast<char*>(a.of_state), before);
    }

private:
    void run_one_by_one(const LayerMemory& a) const {
        const int64_t size = size_of(r_.dtype), width = r_.batch * r_.width() * size;
        const Scratch<> sums(size_t(r_.batch * r_.hidden * size));
        for (int64_t i = r_.steps - 1; i >= -1; --i) {
            visit_floating_groups(r_.dtype, [&]<class Group>(Tag<Group>) {
                launch_kernel("a step back of a recurrent layer", step_back_kernel<Group>,
                              unsigned(ceil_div(r_.batch * r_.hidden, THREADS)), THREADS, a,
                              static_cast<const void*>(sums.data()), i);
            });
            if (i < 0) break;  // the last only adds
            char* operands[] = {sums.data(), static_cast<char*>(a.of_state) + r_.step(i) * width,
                                static_cast<char*>(const_cast<void*>(a.weight))};
            of_state_->run(operands, nullptr);
        }
    }

    Recurrence r_;
    RecurrenceProducts products_;
    KernelPtr of_state_;
};

KernelPtr recurrence(const Request& request) {
    Recurrence r;
    return read_recurrence(request, &r) ? std::make_unique<Forward>(request, r) : nullptr;
}

KernelPtr recurrence_grad(const Request& request) {
    Recurrence r;
    return read_recurrence_grad(request, &r) ? std::make_unique<Backward>(request, r) : nullptr;
}

}  // namespace

void add_recurrence(Registry& registry) {
    registry["recurrence"] = recurrence;
    registry["recurrence_grad"] = recurrence_grad;
}

}  // namespace norch::nn
