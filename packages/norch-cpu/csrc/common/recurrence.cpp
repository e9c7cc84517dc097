#include "common/recurrence.h"

#include <initializer_list>

#include "common/operands.h"
#include "common/product.h"
#include "runtime/families.h"

namespace norch::nn {
namespace {

/// Gives out positions of operands one after the other.
struct Positions {
    const std::vector<int64_t>& given;
    int next = 0;
    size_t at = 0;

    void output(int* position, bool is_there = true) {
        if (is_there) *position = next++;
    }
    /// The next of the op's tensor parameters.
    void input(int* position) {
        if (given[at++]) *position = next++;
    }
};

/// What both requests say of the layer; `count` is how many operands were found.
bool read(const Request& request, int count, Recurrence* out) {
    const auto& o = request.operands;
    if (size_t(count) != o.size()) return false;
    const Operand& x = o[size_t(out->input)];
    out->dtype = x.dtype;
    out->reverse = request.attrs.flag("reverse");
    out->steps = x.ndim() == 3 ? x.shape[0] : 1;
    out->batch = x.shape[size_t(x.ndim() - 2)];
    out->inputs = x.shape.back();
    out->hidden = o[size_t(out->hx)].shape.back();
    if (!out->rows() || !out->inputs || !out->hidden) return false;
    for (const Operand& operand : o)
        if (!operand.is_contiguous()) return false;
    return true;
}

void read_mode(const Request& request, Recurrence* out) {
    const std::string& mode = request.attrs.text("mode");
    out->cell = mode == "LSTM" ? Cell::lstm : mode == "GRU" ? Cell::gru : mode == "RNN_TANH" ? Cell::rnn_tanh : Cell::rnn_relu;
    out->gates = mode == "LSTM" ? 4 : mode == "GRU" ? 3 : 1;
}

}  // namespace

bool read_recurrence(const Request& request, Recurrence* out) {
    read_mode(request, out);
    const auto& given = request.attrs.integers("given");
    const bool lstm = out->is_lstm(), saves = request.attrs.flag("saves");
    Positions p{given};
    int count = int(request.operands.size()), projection = -1;
    for (int64_t g : given) count -= int(g);
    const int results = 1 + lstm + (saves ? (lstm ? 2 : out->cell == Cell::gru) : 0);
    p.output(&out->states, count > results);  // one step has none
    p.output(&out->h);
    p.output(&out->c, lstm);
    p.output(&out->saved_gates, saves && (lstm || out->cell == Cell::gru));
    p.output(&out->saved_cells, saves && lstm);
    for (int* position : {&out->input, &out->hx, &out->cx, &out->weight_ih, &out->weight_hh, &out->bias_ih, &out->bias_hh,
                          &projection, &out->mask})
        p.input(position);
    return projection < 0 && read(request, p.next, out);
}

bool read_recurrence_grad(const Request& request, Recurrence* out) {
    read_mode(request, out);
    const bool weights = request.attrs.flag("needs_weights"), bias = weights && request.attrs.flag("bias");
    Positions p{request.attrs.integers("given")};
    int projection = -1;
    p.output(&out->for_hx);
    p.output(&out->for_cx, out->is_lstm());
    p.output(&out->for_input, request.attrs.flag("needs_input"));
    p.output(&out->for_weight_ih, weights);
    p.output(&out->for_weight_hh, weights);
    p.output(&out->for_bias_ih, bias);
    p.output(&out->for_bias_hh, bias && out->cell == Cell::gru);
    for (int* position : {&out->g_states, &out->g_h, &out->g_c, &out->input, &out->hx, &out->cx, &out->weight_ih,
                          &out->weight_hh, &projection, &out->mask, &out->states, &out->saved_gates, &out->saved_cells})
        p.input(position);
    return projection < 0 && read(request, p.next, out);
}

Operand matrix(DType dtype, int64_t rows, int64_t columns) { return {dtype, {rows, columns}, {columns, 1}}; }

[[gnu::cold]] KernelPtr input_gates(const Request& request, const Recurrence& r) {
    const Operand* bias = r.bias_ih < 0 ? nullptr : &request.operands[size_t(r.bias_ih)];
    return matmul::product_kernel(matrix(r.dtype, r.rows(), r.width()), matrix(r.dtype, r.rows(), r.inputs),
                                  transposed(request.operands[size_t(r.weight_ih)]), bias);
}

RecurrenceProducts::RecurrenceProducts(const Request& request, const Recurrence& r, int64_t row) : r_(r) {
    const auto& o = request.operands;
    const Operand slopes{r.dtype, {r.rows(), r.width()}, {row, 1}}, turned = transposed(slopes);
    const Operand x = matrix(r.dtype, r.rows(), r.inputs), h = matrix(r.dtype, r.rows(), r.hidden);
    if (r.for_input >= 0) input_ = matmul::product_kernel(x, slopes, o[size_t(r.weight_ih)]);
    if (r.for_weight_ih < 0) return;
    weight_ih_ = matmul::product_kernel(o[size_t(r.for_weight_ih)], turned, x);
    weight_hh_ = matmul::product_kernel(o[size_t(r.for_weight_hh)], turned, h);
    if (r.for_bias_ih < 0) return;
    Registry reductions;
    reduction::add_reductions(reductions);
    Request sum{"sum", {matrix(r.dtype, 1, r.width()), slopes}, {}};
    sum.attrs.values["dims"].kind = Attrs::Value::integers;
    sum.attrs.values["dims"].list = {0};
    bias_ = reductions.at("sum")(sum);
}

double RecurrenceProducts::work() const {
    double sum = 0;
    for (const KernelPtr* kernel : {&input_, &weight_ih_, &weight_hh_, &bias_})
        if (*kernel) sum += (*kernel)->work;
    return sum;
}

void RecurrenceProducts::run(char* const* data, char* of_input, char* of_state, char* before) const {
    const auto launch = [](const KernelPtr& kernel, std::initializer_list<char*> operands) {
        kernel->run(operands.begin(), nullptr);
    };
    if (input_) launch(input_, {data[r_.for_input], of_input, data[r_.weight_ih]});
    if (weight_ih_) launch(weight_ih_, {data[r_.for_weight_ih], of_input, data[r_.input]});
    if (weight_hh_) launch(weight_hh_, {data[r_.for_weight_hh], of_state, before});
    if (bias_) launch(bias_, {data[r_.for_bias_ih], of_input});
    if (r_.for_bias_hh >= 0) launch(bias_, {data[r_.for_bias_hh], of_state});
}

}  // namespace norch::nn
