// Attention of packed sequences: outputs, statistics and selected weights in one pass over the scores.
//
// Attention(Q, K, V) = softmax(QKᵀ / √D) V (Vaswani et al. 2017, §3.2.1), for each head of each sequence separately.
// The kernel processes one block of query rows at a time. The block's scores for all keys stay in the cache (8 rows of
// 512 keys are 16 KB), so the softmax needs no second pass over the keys, and observations read the weights from there.
//
// In a long text, keys and values themselves leave the cache (those of 8,192 tokens are 4 MB). There a stripe of many blocks
// goes through the keys in parts, each of which is read once for all of its blocks. Only maps and thumbnails
// need whole rows.
#pragma once

#include <algorithm>
#include <type_traits>

#include "interface.h"
#include "observing/thumbnail.h"
#include "rows/interventions.h"
#include "scratch.h"
#include "shares.h"
#include "statistics.h"

namespace HEADLIGHT_NAMESPACE {

// One head of one sequence; P is the implementation of the products.
template <class P>
class Head {
   public:
    using Element = typename P::Element;

    Head(const Attention &all, int64_t sequence, int64_t head)
        : all_(all),
          observation_(all.observations ? &all.observations[sequence] : nullptr),
          intervention_(all.interventions ? &all.interventions[sequence] : nullptr),
          first_(all.starts[sequence]),
          n_(all.starts[sequence + 1] - first_),
          attended_(n_ - (all.unattended ? all.unattended[sequence] : 0)),
          head_(head),
          kv_head_(all.kv_heads ? head / (all.heads / all.kv_heads) : head),
          columns_(rounded_up(n_, P::COLUMN_STEP)),
          size_(all.head_size),
          words_(size_ / P::PER_WORD),
          slot_(observation_ && observation_->statistics ? observation_->statistic_slots[head] : -1),
          map_(observation_ && observation_->maps ? observation_->head_slots[head] : -1),
          thumbnail_(observation_, head),
          every_row_(all.output || slot_ >= 0 || thumbnail_.wanted()),
          blocks_edges_(blocks_edges(intervention_, head)),
          in_parts_(map_ < 0 && !thumbnail_.wanted() && (all.window ? std::min(n_, 2 * all.window + P::ROWS) : n_) > WHOLE),
          stride_(in_parts_ ? PART : columns_) {
        if (const Distances *distances = all.distances; distances && n_) {
            first_vector_ = distances->rows[distances->length + n_ - 2] / LANES * LANES;
            vector_count_ = rounded_up(distances->rows[distances->length - n_] + 1 - first_vector_, LANES);
        }
    }

    // Compute the outputs and observations of this head; false if out of memory.
    bool run(Work &work) {
        if (!every_row_ && map_ < 0) return true;
        if (!lay_out()) return false;
        run_rows(0, 1, work);
        if (slot_ >= 0) measures_.write(observation_->statistics + slot_ * STATISTICS, n_);
        thumbnail_.finish();
        if (intervention_ && all_.output)
            change_outputs<P>(*intervention_, head_, output(0), all_.heads * size_, n_, size_);
        return true;
    }

    // Compute some rows of a map alone; false if out of memory.
    bool run(Work &work, int64_t start, int64_t stop) {
        if (!lay_out(start, stop)) return false;
        attend_rows(start, stop, 0, 1, work);
        return true;
    }

    // Lay out keys and values; false if out of memory.
    bool lay_out() { return lay_out(0, n_); }

    // The same, but of a window only the keys that some rows see.
    bool lay_out(int64_t start, int64_t stop) {
        if (!find_room()) return false;
        const int64_t stride = all_.token_stride;
        const int64_t first = all_.window ? std::max<int64_t>(0, start - all_.window) / P::PANEL * P::PANEL : 0;
        const int64_t last = all_.window ? std::min(columns_, rounded_up(stop + all_.window, P::COLUMN_STEP)) : columns_;
        lay_out_keys<P::PANEL>((const uint32_t *)at(all_.k, first, kv_head_), stride / P::PER_WORD, n_ - first, last - first,
                               words_, keys_ + first * words_);
        if (all_.output) lay_out_values(at(all_.v, 0, kv_head_), stride, n_, columns_, size_, values_);
        if (all_.distances && all_.distances->queries) compare_keys();
        return true;
    }

    // Attend one of several shares of the rows.
    void run_rows(int64_t share, int64_t shares, Work &work) { attend_rows(0, n_, share, shares, work); }

    static constexpr int64_t WHOLE = 512;                           // the most keys of which a row is attended whole
    static constexpr int64_t PART = WHOLE / P::PANEL * P::PANEL;    // keys
    static constexpr int64_t STRIPE = 128 / P::ROWS * P::ROWS;      // rows

   private:
    // Attend one of several shares of the rows from `from` to before `to`.
    void attend_rows(int64_t from, int64_t to, int64_t share, int64_t shares, Work &work) {
        const int64_t size = in_parts_ ? STRIPE : P::ROWS, count = to - from, blocks = (count + size - 1) / size;
        for (int64_t b = blocks * share / shares; b < blocks * (share + 1) / shares; b++) {  // of nearly equal size
            const int64_t start = from + count * b / blocks, stop = from + count * (b + 1) / blocks;
            if (in_parts_ && slot_ >= 0)
                attend_in_parts<true>(start, stop, work);
            else if (in_parts_)
                attend_in_parts<false>(start, stop, work);
            else if (const int rows = choose_rows(start, stop); rows && slot_ >= 0)
                attend<true>(rows, work);
            else if (rows)
                attend<false>(rows, work);
        }
    }

    const Element *at(const void *x, int64_t token, int64_t head) const {
        return (const Element *)x + (first_ + token) * all_.token_stride + head * size_;
    }

    Element *output(int64_t token) const {
        return (Element *)all_.output + ((first_ + token) * all_.heads + head_) * size_;
    }

    bool find_room() {
        const size_t matrix = rounded_up(columns_, P::PANEL) * words_ * 4;
        const size_t scores = P::ROWS * stride_ * 4, vectors = P::ROWS * size_ * 4, sums = in_parts_ ? STRIPE * size_ * 4 : 0;
        const size_t by_query = P::ROWS * vector_count_ * 4, by_key = rounded_up(n_, P::ROWS) * vector_count_ * 4;
        const size_t cells = thumbnail_.room(columns_) * 4;
        char *memory = reserve_scratch(2 * (matrix + scores + vectors) + sums + by_query + by_key + cells);
        if (memory == nullptr) return false;
        keys_ = (uint32_t *)memory;
        values_ = (uint32_t *)(memory += matrix);
        scores_ = (float *)(memory += matrix);
        weights_ = (Element *)(memory += scores);
        queries_ = (uint32_t *)(memory += scores);
        mixed_ = (float *)(memory += vectors);
        sums_ = (float *)(memory += vectors);
        by_query_ = (float *)(memory += sums);
        by_key_ = (float *)(memory += by_query);
        if (thumbnail_.wanted()) thumbnail_.begin((float *)(memory + by_key), columns_);
        return true;
    }

    // Copy the selected queries of a block; returns how many.
    int choose_rows(int64_t start, int64_t stop) {
        int rows = 0;
        for (int64_t i = start; i < stop; i++) {
            if (!every_row_ && row_slot(i) < 0) continue;
            std::memcpy(queries_ + rows * words_, at(all_.q, i, head_), words_ * 4);
            query_[rows++] = i;
        }
        return rows;
    }

    int64_t row_slot(int64_t query) const { return observation_->row_slots ? observation_->row_slots[query] : query; }

    // Keys from `first` to before `last`; with padding there are `columns`.
    struct Keys {
        int64_t first, last, columns;
    };

    // The keys that some query of a block of rows sees: others are not computed.
    Keys visible(int rows) const {
        Keys keys{0, attended_, columns_};
        if (all_.window) {
            const int64_t first = std::max<int64_t>(0, query_[0] - all_.window);
            keys.first = first / P::COLUMN_STEP * P::COLUMN_STEP;
            keys.last = std::min(attended_, query_[rows - 1] + all_.window + 1);
        }
        if (all_.causal) keys.last = std::min(keys.last, query_[rows - 1] + 1);
        keys.columns = rounded_up(keys.last - keys.first, P::COLUMN_STEP);
        return keys;
    }

    // The vectors of distances of this head.
    const uint32_t *vectors(const void *of_all) const {
        return (const uint32_t *)of_all + head_ * rounded_up(all_.distances->number, P::PANEL) * words_;
    }

    // Multiply the keys with the queries of those distances that this sequence has.
    void compare_keys() {
        const uint32_t *with = vectors(all_.distances->queries);
        for (int64_t start = 0; start < n_; start += P::ROWS) {
            const int rows = (int)std::min<int64_t>(P::ROWS, n_ - start);
            for (int r = 0; r < rows; r++) std::memcpy(queries_ + r * words_, at(all_.k, start + r, kv_head_), words_ * 4);
            P::product(rows, queries_, words_, with, first_vector_, vector_count_, by_key_ + start * vector_count_,
                       vector_count_);
        }
    }

    // Add the products with distances to the scores of a block. Its rows look up the same keys in turn, while these are in
    // the cache.
    void add_distances(int rows, const Keys &keys) {
        const Distances &all = *all_.distances;
        if (all.keys)
            P::product(rows, queries_, words_, vectors(all.keys), first_vector_, vector_count_, by_query_, vector_count_);
        const Words first = broadcast_word((uint32_t)first_vector_);
        const Words next_keys = words_of(mul(lane_numbers(), broadcast((float)vector_count_)));  // rows of `by_key_`
        for (int64_t j = keys.first; j < keys.last; j += LANES) {
            const Mask real = lanes_below(j, keys.last);
            for (int r = 0; r < rows; r++) {
                const Words place = sub_words(load_some_words(all.rows + all.length - 1 + j - query_[r], real), first);
                float *scores = row(r) + j;
                Floats sum = load_aligned(scores);
                if (all.keys) sum = add(sum, gather(by_query_ + r * vector_count_, place, real));
                if (all.queries) sum = add(sum, gather(by_key_ + j * vector_count_, add_words(place, next_keys), real));
                store_aligned(scores, sum);
            }
        }
    }

    // The scores of a row of the block by key, and its weights, rounded.
    float *row(int r) const { return scores_ + r * stride_ - origin_; }
    Element *weights(int r) const { return weights_ + r * stride_ - origin_; }

    // Compute the scores of a block.
    void compare(int rows, const Keys &keys) {
        P::product(rows, queries_, words_, keys_, keys.first, keys.columns, row(0) + keys.first, stride_);
        if (all_.distances) add_distances(rows, keys);
        for (int r = 0; r < rows; r++) {
            if (all_.bias) add_bias(row(r), keys, query_[r]);
            if (all_.window || all_.causal || attended_ < n_) hide(row(r), keys, query_[r]);
            if (blocks_edges_) hide_blocked(*intervention_, head_, query_[r], row(r), keys.first, keys.last);
        }
    }

    template <bool MEASURED>
    void attend(int rows, Work &work) {
        const Keys keys = visible(rows);
        compare(rows, keys);
        float sums[P::ROWS];
        const bool averaged = map_ >= 0 && observation_->shares, mapped = map_ >= 0 && !averaged;
        const bool kept = MEASURED || map_ >= 0 || thumbnail_.wanted();
        for (int r = 0; r < rows; r++) {
            float *e = row(r);
            const float most = largest(e + keys.first, keys.last - keys.first);
            const bool none = blocks_edges_ && most == -INFINITY;  // no key is left: all weights are 0
            Row sum = kept ? weigh<MEASURED, float, true>(r, keys, none ? 0 : most)
                           : weigh<false, float, false>(r, keys, none ? 0 : most);
            if (none) sum.sum = 1;
            sums[r] = sum.sum;
            if (!kept) continue;
            if (MEASURED || mapped) clear_hidden(e, keys);
            if (MEASURED && !none) measures_.add(sum, e, query_[r], n_);
            if (thumbnail_.wanted()) thumbnail_.add(e, sum.sum, query_[r], keys.first, keys.columns);
            if (averaged) add_to_map(e, observation_->shares[head_] / sum.sum, query_[r], keys);
            if (mapped) store(e, 1 / sum.sum, query_[r]);
        }
        if (all_.output) {
            mix(rows, keys);
            for (int r = 0; r < rows; r++) write(mixed_ + r * size_, sums[r], query_[r]);
        }
        work.add(2 * rows * keys.columns * size_);
    }

    // Attend a stripe of rows, to one part of the keys after the other.
    template <bool MEASURED>
    void attend_in_parts(int64_t start, int64_t stop, Work &work) {
        Seen seen[STRIPE];
        std::fill(sums_, sums_ + (stop - start) * size_, 0.0f);
        for (origin_ = 0; origin_ < n_; origin_ += PART) {
            for (int64_t first = start; first < stop; first += P::ROWS) {
                const int rows = choose_rows(first, std::min(first + P::ROWS, stop));
                Keys keys = visible(rows);
                keys.first = std::max(keys.first, origin_);
                keys.last = std::min(keys.last, origin_ + PART);
                if (keys.last <= keys.first) continue;  // none of them sees this part
                keys.columns = rounded_up(keys.last - keys.first, P::COLUMN_STEP);
                attend_part<MEASURED>(rows, keys, seen + first - start, sums_ + (first - start) * size_);
                work.add(2 * rows * keys.columns * size_);
            }
        }
        origin_ = 0;
        for (int64_t i = start; i < stop; i++) {
            Seen &one = seen[i - start];
            const bool none = blocks_edges_ && one.row.sum == 0;  // no key was left
            if (none) one.row.sum = 1;
            if (MEASURED && !none) measures_.add(one, i);
            if (all_.output) write(sums_ + (i - start) * size_, one.row.sum, i);
        }
    }

    // Attend a block to some of the keys, and add to the sums of its rows.
    template <bool MEASURED>
    void attend_part(int rows, const Keys &keys, Seen *seen, float *sums) {
        compare(rows, keys);
        float factors[P::ROWS];
        for (int r = 0; r < rows; r++) {
            factors[r] = seen[r].rise_to(largest(row(r) + keys.first, keys.last - keys.first), all_.scale);
            seen[r].add(weigh<MEASURED, std::conditional_t<MEASURED, float, Element>, MEASURED>(r, keys, seen[r].largest));
            if (MEASURED) seen[r].note(row(r), keys.first, keys.last, query_[r], factors[r]);
        }
        if (!all_.output) return;
        mix(rows, keys);
        for (int r = 0; r < rows; r++) {
            const Floats factor = broadcast(factors[r]);
            for (int64_t d = r * size_; d < (r + 1) * size_; d += LANES)
                store_aligned(sums + d, fmadd(load_aligned(sums + d), factor, load_aligned(mixed_ + d)));
        }
    }

    // Turn a row of scores into weights, rounded for the product with the values; if KEPT also in place.
    template <bool MEASURED, class Exact, bool KEPT>
    Row weigh(int r, const Keys &keys, float most) {
        float *e = row(r) + keys.first;
        Element *rounded = weights(r) + keys.first;
        const float *special = MEASURED ? observation_->special + keys.first : nullptr;
        return HEADLIGHT_NAMESPACE::weigh<MEASURED, Exact>(e, keys.last - keys.first, keys.columns, most, all_.scale,
                                                           query_[r] - keys.first, special, [=](int64_t j, Floats weights) {
                                                               if (KEPT) store_aligned(e + j, weights);
                                                               P::store(rounded + j, weights);
                                                           });
    }

    // Add the bias of each key's distance to a row of scores.
    void add_bias(float *scores, const Keys &keys, int64_t query) const {
        const int64_t length = all_.bias_length;
        const float *bias = all_.bias + head_ * (2 * length - 1) + length - 1 - query;
        for (int64_t j = keys.first; j < keys.last; j += LANES)
            store_aligned(scores + j, add(load_aligned(scores + j), load_some(bias + j, lanes_below(j, keys.last))));
    }

    // Hide the keys that a query of the block does not see.
    void hide(float *scores, const Keys &keys, int64_t query) const {
        int64_t first = keys.first, last = keys.last;
        if (all_.window) first = std::clamp(query - all_.window, first, last);
        if (all_.window) last = std::clamp(query + all_.window + 1, first, last);
        if (all_.causal) last = std::clamp(query + 1, first, last);
        std::fill(scores + keys.first, scores + first, -INFINITY);
        std::fill(scores + last, scores + keys.last, -INFINITY);
    }

    // Make the weights 0 of those keys that no query of the block sees.
    void clear_hidden(float *e, const Keys &keys) const {
        std::fill(e, e + keys.first, 0.0f);
        std::fill(e + keys.first + keys.columns, e + columns_, 0.0f);
    }

    // Multiply the weights of a block with the values.
    void mix(int rows, const Keys &keys) {
        const auto *weights = (const uint32_t *)(this->weights(0) + keys.first);
        P::mix(rows, weights, stride_ / P::PER_WORD, keys.columns / P::PER_WORD, values_ + keys.first / P::PER_WORD * size_, size_,
               mixed_);
    }

    // Write the output of a query: a sum of values, divided by that of their weights.
    void write(const float *values, float weights, int64_t query) {
        Element *out = output(query);
        const Floats sum = broadcast(weights);
        for (int64_t d = 0; d < size_; d += LANES) P::store(out + d, div(load_aligned(values + d), sum));
    }

    // Write a row of weights to the map if the row is selected.
    void store(const float *e, float inverse, int64_t query) {
        const int64_t slot = row_slot(query);
        if (slot < 0) return;
        const bool finite = inverse > 0 && inverse <= 1;
        if (observation_->finite && !finite) __atomic_store_n(observation_->finite, 0, __ATOMIC_RELAXED);
        const int64_t place = (map_ * observation_->map_rows + slot) * n_;
        const Floats by = broadcast(inverse);
        for (int64_t j = 0; j < n_; j += LANES) {
            const Floats p = mul(load_aligned(e + j), by);
            const Mask real = lanes_below(j, n_);
            if (observation_->half)
                store_some_as_float16((uint16_t *)observation_->maps + place + j, p, real);
            else
                store_some((float *)observation_->maps + place + j, p, real);
        }
    }

    // Add a share of a row of weights to the map of all heads.
    void add_to_map(const float *e, float share, int64_t query, const Keys &keys) {
        float *sums = (float *)observation_->maps + row_slot(query) * n_;
        const Floats by = broadcast(share);
        for (int64_t j = keys.first; j < keys.last; j += LANES) {
            const Mask real = lanes_below(j, keys.last);
            store_some(sums + j, fmadd(load_aligned(e + j), by, load_some(sums + j, real)), real);
        }
    }

    const Attention &all_;
    const Observation *observation_;
    const Intervention *intervention_;
    const int64_t first_, n_, attended_, head_, kv_head_, columns_, size_, words_;
    const int slot_, map_;
    Thumbnail thumbnail_;
    const bool every_row_, blocks_edges_, in_parts_;
    const int64_t stride_;  // between rows of scores
    int64_t origin_ = 0;    // the key of their first column
    Measures measures_;
    uint32_t *keys_, *values_, *queries_;
    float *scores_, *mixed_, *sums_, *by_query_, *by_key_;
    int64_t first_vector_ = 0, vector_count_ = 0;  // of the distances that the sequence has
    Element *weights_;
    int64_t query_[P::ROWS];
};

inline bool slots_fit(const int32_t *slots, int64_t count, int64_t below) {
    if (slots == nullptr) return false;
    for (int64_t i = 0; i < count; i++)
        if (slots[i] >= below) return false;
    return true;
}

// Whether the vectors of distances are there, for sequences of up to `longest` tokens.
template <class P>
bool fits(const Distances &all, int64_t longest) {
    if (P::PANEL != BLOCK_VECTORS * LANES || !all.rows || !(all.keys || all.queries)) return false;
    if ((uintptr_t)all.keys % 64 || (uintptr_t)all.queries % 64) return false;
    if (all.length < std::max<int64_t>(1, longest) || all.rows[0] >= all.number || all.rows[2 * all.length - 2] < 0)
        return false;
    for (int64_t i = 1; i < 2 * all.length - 1; i++)
        if (all.rows[i] > all.rows[i - 1]) return false;
    return true;
}

// Whether each of n queries sees a key if the last ones are hidden, and those beyond a window.
inline bool fits(int64_t unattended, int64_t n, int64_t window) {
    return unattended >= 0 && (unattended < n || n == 0) && (window == 0 || unattended <= window);
}

// Whether all reads and writes stay within the arrays.
template <class P>
bool fits(const Attention &all) {
    constexpr int64_t step = P::HEAD_STEP, per_word = P::PER_WORD;
    if (all.tokens && !(all.q && all.k && all.v)) return false;
    if (!all.starts || all.tokens < 0 || all.sequences < 0 || all.heads < 1) return false;
    if (all.head_size < step || all.head_size % step || all.token_stride < all.heads * all.head_size) return false;
    if (all.token_stride % per_word || all.starts[0] != 0 || all.starts[all.sequences] > all.tokens) return false;
    if (all.kv_heads < 0 || (all.kv_heads && all.heads % all.kv_heads)) return false;
    if (all.window < 0 || all.window > INT64_MAX / 2) return false;
    int64_t longest = 0;
    for (int64_t i = 0; i < all.sequences; i++) longest = std::max(longest, all.starts[i + 1] - all.starts[i]);
    if (all.distances && !fits<P>(*all.distances, longest)) return false;
    for (int64_t i = 0; i < all.sequences; i++) {
        const int64_t n = all.starts[i + 1] - all.starts[i];
        if (n < 0 || (all.bias && n > all.bias_length)) return false;
        if (all.unattended && !fits(all.unattended[i], n, all.window)) return false;
        if (all.interventions && !fits(all.interventions[i], n)) return false;
        if (all.observations == nullptr) continue;
        const Observation &one = all.observations[i];
        if (one.statistics && !(one.special && slots_fit(one.statistic_slots, all.heads, one.statistic_heads)))
            return false;
        if (one.maps && !slots_fit(one.head_slots, all.heads, one.map_heads)) return false;
        if (one.shares && (all.output || !one.maps || one.half || one.statistics || one.thumbnails)) return false;
        if (one.maps && !(one.row_slots ? slots_fit(one.row_slots, n, one.map_rows) : one.map_rows == n))
            return false;
        if (one.thumbnails && !(slots_fit(one.thumbnail_slots, all.heads, one.thumbnail_heads) && cells_fit(one, n)))
            return false;
    }
    return true;
}

}  // namespace HEADLIGHT_NAMESPACE
