// scaled_dot_product_attention without a mask or a causal one, and its gradient: a head at a time, some queries at a
// time, so that their scores stay in the cache. The gradient computes the weights again (Dao et al., 2022).
#include <algorithm>

#include <cmath>

#include "lines.h"
#include "math.h"

namespace norch {
namespace {

constexpr int64_t QUERIES = 64;  // queries whose scores are in the cache together

struct Matrix {
    const float* data;
    int64_t row, column;  // strides, in elements
};

constexpr int TILE_ROWS = 4;
#ifdef __AVX512F__
constexpr int TILE_COLUMNS = 32;
#else
constexpr int TILE_COLUMNS = 16;
#endif

/// out (+)= a @ b for a tile of out; b's columns are contiguous.
template <int ROWS, bool ADD>
void product_tile(float* out, int64_t out_row, Matrix a, Matrix b, int64_t k) {
    float sums[ROWS][TILE_COLUMNS];
    for (int r = 0; r < ROWS; ++r)
        for (int j = 0; j < TILE_COLUMNS; ++j) sums[r][j] = ADD ? out[r * out_row + j] : 0.0f;
    for (int64_t p = 0; p < k; ++p)
        for (int r = 0; r < ROWS; ++r) {
            const float x = a.data[r * a.row + p * a.column];
            for (int j = 0; j < TILE_COLUMNS; ++j) sums[r][j] += x * b.data[p * b.row + j];
        }
    for (int r = 0; r < ROWS; ++r)
        for (int j = 0; j < TILE_COLUMNS; ++j) out[r * out_row + j] = sums[r][j];
}

/// The same for the columns that are no whole tile.
template <bool ADD>
void product_rest(float* out, int64_t out_row, Matrix a, Matrix b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float sums[TILE_COLUMNS] = {};
        for (int64_t p = 0; p < k; ++p) {
            const float x = a.data[i * a.row + p * a.column];
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < n; ++j) sums[j] += x * b.data[p * b.row + j];
        }
        for (int64_t j = 0; j < n; ++j) out[i * out_row + j] = sums[j] + (ADD ? out[i * out_row + j] : 0.0f);
    }
}

/// out (+)= a @ b, (m, k) and (k, n)
template <bool ADD = false>
void product(float* out, int64_t out_row, Matrix a, Matrix b, int64_t m, int64_t n, int64_t k) {
    int64_t j = 0;
    for (; j + TILE_COLUMNS <= n; j += TILE_COLUMNS) {
        const Matrix right{b.data + j, b.row, 1};
        int64_t i = 0;
        for (; i + TILE_ROWS <= m; i += TILE_ROWS)
            product_tile<TILE_ROWS, ADD>(out + i * out_row + j, out_row, {a.data + i * a.row, a.row, a.column}, right, k);
        for (; i < m; ++i)
            product_tile<1, ADD>(out + i * out_row + j, out_row, {a.data + i * a.row, a.row, a.column}, right, k);
    }
    if (j < n) product_rest<ADD>(out + j, out_row, a, {b.data + j, b.row, 1}, m, n - j, k);
}

/// A batch of matrices.
struct Part {
    int64_t row, column;  // strides, in elements
    Matrix at(char* data) const { return {reinterpret_cast<const float*>(data), row, column}; }
};

class Attention {
public:
    /// `query` is query's place among the operands; key and value come after it.
    Attention(const Request& request, int query)
        : causal_(request.attrs.flag("is_causal")), scale_(float(request.attrs.number("scale"))) {
        const Operand &q = request.operands[query], &v = request.operands[query + 2];
        int nd = q.ndim();
        queries_ = q.shape[nd - 2];
        keys_ = v.shape[nd - 2];
        size_ = q.shape[nd - 1];
        values_ = v.shape[nd - 1];
        std::vector<int> batch;
        for (int d = 0; d + 2 < nd; ++d) batch.push_back(d);
        loops_ = collapse(request.operands, batch);
        for (const Operand& o : request.operands) parts_.push_back({o.strides[nd - 2], o.strides[nd - 1]});
    }

    double head_ns() const { return 0.05 * double(queries_ * keys_) * double(size_ + values_ + 16); }
    int64_t heads() const { return loops_.numel; }
    int64_t scratch() const { return (size_ + values_) * keys_ + 2 * QUERIES * keys_; }

    template <class Body>
    void for_each_head(char* const* data, double ns, const Body& body) const {
        parallel_for(heads(), ns, [&](int64_t begin, int64_t end) {
            Scratch<float> scratch(this->scratch());
            Walker walker(loops_, loops_.ndim(), data, begin);
            for (int64_t i = begin; i < end; ++i, walker.next()) body(walker.pointers(), scratch.data());
        });
    }

    void forward(char* const* p, float* scratch) const {
        Matrix q = parts_[1].at(p[1]), v = parts_[3].at(p[3]);
        float *out = reinterpret_cast<float*>(p[0]), *turned = scratch, *weights = turned + size_ * keys_;
        turn(turned, p[2], parts_[2], size_);
        for (int64_t i = 0; i < queries_; i += QUERIES) {
            int64_t rows = std::min(QUERIES, queries_ - i), seen = keys_seen(i + rows);
            weigh(weights, {q.data + i * q.row, q.row, q.column}, turned, i, rows, seen);
            product(out + i * parts_[0].row, parts_[0].row, {weights, keys_, 1}, v, rows, values_, seen);
        }
    }

    /// p: for query, for key, for value, grad, query, key, value.
    void backward(char* const* p, float* scratch) const {
        Matrix g = parts_[3].at(p[3]), q = parts_[4].at(p[4]), k = parts_[5].at(p[5]);
        float *for_query = reinterpret_cast<float*>(p[0]), *for_key = reinterpret_cast<float*>(p[1]);
        float* for_value = reinterpret_cast<float*>(p[2]);
        float *turned_keys = scratch, *turned_values = scratch + size_ * keys_;
        float *weights = turned_values + values_ * keys_, *slopes = weights + QUERIES * keys_;
        turn(turned_keys, p[5], parts_[5], size_);
        turn(turned_values, p[6], parts_[6], values_);
        std::fill(for_key, for_key + keys_ * size_, 0.0f);
        std::fill(for_value, for_value + keys_ * values_, 0.0f);
        for (int64_t i = 0; i < queries_; i += QUERIES) {
            int64_t rows = std::min(QUERIES, queries_ - i), seen = keys_seen(i + rows);
            Matrix some_g{g.data + i * g.row, g.row, g.column}, some_q{q.data + i * q.row, q.row, q.column};
            weigh(weights, some_q, turned_keys, i, rows, seen);
            product<true>(for_value, values_, {weights, 1, keys_}, some_g, seen, values_, rows);
            product(slopes, keys_, some_g, {turned_values, keys_, 1}, rows, seen, values_);
            for (int64_t r = 0; r < rows; ++r) slope_row(slopes + r * keys_, weights + r * keys_, seen);
            product(for_query + i * size_, size_, {slopes, keys_, 1}, k, rows, size_, seen);
            product<true>(for_key, size_, {slopes, 1, keys_}, some_q, seen, size_, rows);
        }
    }

private:
    int64_t keys_seen(int64_t queries) const { return causal_ ? std::min(keys_, queries) : keys_; }

    /// Keys or values, (keys, n), as (n, keys).
    void turn(float* to, char* from, const Part& part, int64_t n) const {
        Plane turned{reinterpret_cast<char*>(to), keys_ * 4, 4};
        copy_tile(turned, {from, part.column * 4, part.row * 4}, n, keys_, 4);
    }

    /// softmax(scale * q @ keys), 0 where a query may not look.
    void weigh(float* weights, Matrix q, const float* keys, int64_t first, int64_t rows, int64_t seen) const {
        product(weights, keys_, q, {keys, keys_, 1}, rows, seen, size_);
        for (int64_t r = 0; r < rows; ++r) {
            float* row = weights + r * keys_;
            const float scale = scale_;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < seen; ++j) row[j] *= scale;
            std::fill(row + keys_seen(first + r + 1), row + seen, -HUGE_VALF);  // its weight will be 0
            const float largest = max_of(row, seen);
            const float sum = sum_of<float>(seen, [=](int64_t j) { return row[j] = math::exp(row[j] - largest); });
            const float factor = 1.0f / sum;
            NORCH_INDEPENDENT
            for (int64_t j = 0; j < seen; ++j) row[j] *= factor;
        }
    }

    /// The gradient of the scores, scale included, from that of the weights.
    void slope_row(float* slopes, const float* weights, int64_t n) const {
        const float sum = sum_of<float>(n, [=](int64_t j) { return slopes[j] * weights[j]; });
        const float scale = scale_;
        NORCH_INDEPENDENT
        for (int64_t j = 0; j < n; ++j) slopes[j] = (slopes[j] - sum) * weights[j] * scale;
    }

    bool causal_;
    float scale_;
    int64_t queries_, keys_, size_, values_;
    Loops loops_;
    std::vector<Part> parts_;
};

/// Whether operands from `first` on (query, key, value, and the outputs and gradient before) are float32, have one batch
/// shape and contiguous rows, and there is no mask.
bool is_plain(const Request& request, size_t first) {
#if !defined(__AVX512F__)
    return false;  // 16 registers do not hold these tiles: the parts, one product for all heads, are ten times as fast
#endif
    if (request.operands.size() != first + 3) return false;
    const Operand& query = request.operands[first];
    for (const Operand& o : request.operands) {
        if (o.dtype != DType::f32 || o.ndim() != query.ndim() || !o.numel()) return false;
        if (!std::equal(o.shape.begin(), o.shape.end() - 2, query.shape.begin())) return false;
        if (o.strides.back() != 1 && o.shape.back() != 1) return false;
    }
    return true;
}

KernelPtr forward(const Request& request) {
    if (!is_plain(request, 1)) return nullptr;
    Attention attention(request, 1);
    double ns = attention.head_ns();
    return make_kernel(double(attention.heads()) * ns, [=](char* const* data, const Scalar*) {
        attention.for_each_head(data, ns, [&](char* const* p, float* scratch) { attention.forward(p, scratch); });
    });
}

KernelPtr backward(const Request& request) {
    if (!is_plain(request, 4)) return nullptr;
    for (int i = 0; i < 3; ++i)
        if (!request.operands[i].is_contiguous()) return nullptr;
    Attention attention(request, 4);
    double ns = 2.5 * attention.head_ns();
    return make_kernel(double(attention.heads()) * ns, [=](char* const* data, const Scalar*) {
        attention.for_each_head(data, ns, [&](char* const* p, float* scratch) { attention.backward(p, scratch); });
    });
}

}  // namespace

void add_attention(Registry& registry) {
    registry["scaled_dot_product_attention"] = forward;
    registry["scaled_dot_product_attention_grad"] = backward;
}

}  // namespace norch
