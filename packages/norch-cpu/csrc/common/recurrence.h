// The operands of recurrence and recurrence_grad, found by name: which there are depends on the mode.
#pragma once

#include "common/kernel.h"

namespace norch::nn {

enum class Cell { rnn_tanh, rnn_relu, gru, lstm };

/// Operands, outputs and inputs, of both ops. A position is -1 where there is none.
struct Recurrence {
    Cell cell;
    DType dtype;
    bool reverse;
    int64_t steps, batch, inputs, hidden;
    int64_t gates;  // rows of the weights by hidden size
    /// Results of the forward pass. gates and cells are there where the gradient will need them, or in its request.
    int states = -1, h = -1, c = -1, saved_gates = -1, saved_cells = -1;
    int input = -1, hx = -1, cx = -1, weight_ih = -1, weight_hh = -1, bias_ih = -1, bias_hh = -1, mask = -1;
    /// Gradients: those given, and those asked for.
    int g_states = -1, g_h = -1, g_c = -1;
    int for_hx = -1, for_cx = -1, for_input = -1, for_weight_ih = -1, for_weight_hh = -1, for_bias_ih = -1,
        for_bias_hh = -1;

    int64_t rows() const { return steps * batch; }
    int64_t width() const { return gates * hidden; }
    bool is_lstm() const { return cell == Cell::lstm; }
    /// The step that is computed as number i, and the one before it in that order.
    int64_t step(int64_t i) const { return reverse ? steps - 1 - i : i; }
};

/// Both return false where there is no kernel: for projections, nothing to compute, operands with gaps.
bool read_recurrence(const Request& request, Recurrence* out);
bool read_recurrence_grad(const Request& request, Recurrence* out);

/// A row-major matrix.
Operand matrix(DType dtype, int64_t rows, int64_t columns);

/// The input's part of the gates of all steps, with bias_ih: (rows, width), input, weight_ih, bias_ih or null.
KernelPtr input_gates(const Request& request, const Recurrence& r);

/// The gradients of input and weights from what the gates of all steps contribute.
class RecurrenceProducts {
public:
    RecurrenceProducts(const Request& request, const Recurrence& r);
    double work() const;
    bool needs_states() const { return weight_hh_ != nullptr; }
    /// of_input, of_state: (rows, width), what the gates contribute through the input's part and the state's. before: the
    /// states that the steps began with. data: the operands of the request.
    void run(char* const* data, char* of_input, char* of_state, char* before) const;

private:
    Recurrence r_;
    KernelPtr input_, weight_ih_, weight_hh_, bias_;
};

}  // namespace norch::nn
