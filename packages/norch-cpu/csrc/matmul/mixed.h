// Matrix products of 16-bit floats, and of float32 where it need not be exact: factors are taken as they lie, sums are
// float32, results are rounded once.
#pragma once

#include "common/dtype.h"
#include "matmul/gemm.h"
#include "matmul/tiles.h"

namespace norch::matmul {

/// How many bfloat16 numbers may stand for a factor of float32 in kernels that are made from now on: 1, 2, or 0, where float32
/// products are exact.
void set_float32_parts(int parts);
int float32_parts();

/// c = a @ b for (m, k) and (k, n) of S: half, bfloat16 or float; used as Product is.
template <class S>
class MixedProduct {
public:
    using Number = float;  // of the epilogue

    /// `parts`: how many bfloat16 numbers stand for one of S, if that is float32, where there are tile registers. With 2 an
    /// element's error is below 2^-15 of the sum of its products' magnitudes.
    MixedProduct(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c, int parts);

    /// Whether a product of float32 is faster so.
    static bool pays(int64_t m, int64_t n, int64_t k, int parts);

    void run(const S* a, const S* b, S* c, const Epilogue<float>& epilogue = {}) const;
    int64_t pieces() const { return row_pieces_ * column_pieces_; }
    double piece_ns() const { return piece_ns_; }
    void run_pieces(int64_t first, int64_t last, const S* a, const S* b, S* c, const Epilogue<float>& epilogue = {}) const;

private:
    enum class Path { fill, dots, row_times_rows, tiles, widened };
    struct Area {
        int64_t top, left, rows, columns;
    };
    struct Call {
        const S *a, *b;
        S* c;
        Epilogue<float> epilogue;
        const uint32_t *packed_a = nullptr, *packed_b = nullptr;  // else each area packs what it needs
        int64_t packed_left = 0;                                  // the first column of packed_b
        bool takes_a_as_it_lies = false;
    };

    void choose_path();
    void cut();
    Area area_of(int64_t piece) const;
    void run_area(const Call& call, const Area& area) const;
    void lines(const Call& call, const Area& area) const;
    int64_t packed_rows() const;
    int64_t pieces_at_once() const;
    int64_t packed_columns() const;
    void run_packed(Call call) const;
    bool pack_rows(const Call& call, int64_t first, int64_t count, uint32_t* out) const;
    bool pack_columns(const Call& call, int64_t first, int64_t count, uint32_t* out) const;
    bool tiles(const Call& call, const Area& area) const;
    bool can_take_a_as_it_lies(const Area& area) const;
    void multiply(const Call& call, const Area& area) const;
    void widened(const Call& call, const Area& area) const;
    void finish(const Call& call, const Area& area, float* sums, int64_t row) const;

    int64_t m_, n_, k_;
    MatrixStrides a_, b_, c_;
    Parts parts_;
    int64_t blocks_, line_;  // of 32 steps in k; pairs that 16 lines take
    bool swapped_ = false;  // the transposed product is computed: b.T @ a.T
    Path path_ = Path::widened;
    int64_t row_pieces_ = 1, column_pieces_ = 1, piece_rows_ = 1, piece_columns_ = 1;
    double piece_ns_ = 0;
};

extern template class MixedProduct<half>;
extern template class MixedProduct<bfloat16>;
extern template class MixedProduct<float>;

}  // namespace norch::matmul
