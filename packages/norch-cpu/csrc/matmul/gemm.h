// Matrix products of any layout: planned once for sizes and strides, then run on pointers.
#pragma once

#include <cstdint>

namespace norch::matmul {

constexpr int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// Element (i, j) of a matrix lies at data + i * row + j * column.
struct MatrixStrides {
    int64_t row, column;
};

/// What is done to a product while it is in the cache: a number added to each column, and a function of each element.
template <class T>
struct Epilogue {
    const T* bias = nullptr;
    void (*activation)(T* x, int64_t n) = nullptr;  // in place
};

/// c = a @ b for (m, k) and (k, n). T is float or double; c overlaps neither a nor b, and is only
/// written. The number of threads does not change a bit of it.
template <class T>
class Product {
public:
    using Number = T;  // of the epilogue

    Product(int64_t m, int64_t n, int64_t k, MatrixStrides a, MatrixStrides b, MatrixStrides c);

    void run(const T* a, const T* b, T* c, const Epilogue<T>& epilogue = {}) const;

    /// The product is made of pieces, each an area of c, for callers that have several products to run in parallel.
    int64_t pieces() const { return row_pieces_ * column_pieces_; }
    double piece_ns() const { return piece_ns_; }
    void run_pieces(int64_t first, int64_t last, const T* a, const T* b, T* c, const Epilogue<T>& epilogue = {}) const;

    /// Small products are run many at a time, each factor and result so many elements after the one before.
    bool is_small() const { return path_ == Path::small && pieces() == 1; }
    void run_many(int64_t count, int64_t a_step, int64_t b_step, int64_t c_step, const T* a, const T* b, T* c) const;

private:
    enum class Path { fill, direct, packed, row_times_rows, dots, small };
    struct Area {
        int64_t top, bottom, left, right;
    };
    struct Rows {
        const T* data;
        int64_t row, step;
        bool in_tiles;  // packed by `pack_tiles`
    };
    struct Call;

    void choose_path();
    void cut();
    void run_split(const Call& call) const;
    void run_shared(Call call) const;
    void run_deep(const Call& call) const;
    void run_area(const Call& call, const Area& area) const;
    void fill(const Call& call, const Area& area) const;
    void direct(const Call& call, const Area& area) const;
    template <int L>
    int64_t direct_columns(const Call& call, const Area& area, int64_t left, int64_t right) const;
    void packed(const Call& call, const Area& area) const;
    int64_t most_steps() const;
    bool is_deep() const;
    int64_t deep_parts() const;
    bool shares_panels() const;
    bool spreads_rows() const;
    int64_t spread_row() const;
    int64_t shared_span() const;
    void panel_times_rows(const Call& call, const Area& area, const Rows& rows_of_a, int64_t first_step, int64_t steps,
                          int64_t column, int64_t width, const T* panel, const T* unpacked, T* to_pack) const;
    void row_times_rows(const Call& call, const Area& area) const;
    void dots(const Call& call, const Area& area) const;
    void small(const Call& call, const Area& area) const;
    void finish(const Call& call, const Area& area) const;

    int64_t m_, n_, k_;
    MatrixStrides a_, b_, c_;
    bool swapped_ = false;  // the transposed product is computed: b.T @ a.T
    Path path_ = Path::packed;
    bool starts_with_bias_ = false;
    bool turns_output_ = false;  // c's columns are contiguous: its rows are made first, and turned over
    int64_t row_pieces_ = 1, column_pieces_ = 1, piece_rows_ = 1, piece_columns_ = 1;
    double piece_ns_ = 0;
};

extern template class Product<float>;
extern template class Product<double>;

}  // namespace norch::matmul
