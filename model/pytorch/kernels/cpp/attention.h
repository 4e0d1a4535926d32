// Attention of packed sequences: outputs, statistics and selected weights in one pass over the scores.
//
// Attention(Q, K, V) = softmax(QKᵀ / √D) V (Vaswani et al. 2017, §3.2.1), for each head of each sequence separately.
// The kernel processes one block of query rows at a time. The block's scores for all keys stay in the cache (8 rows of
// 512 keys are 16 KB), so the softmax needs no second pass over the keys, and observations read the weights from there.
//
// In a long text, keys and values themselves leave the cache (those of 8,192 tokens are 4 MB). There a stripe of many blocks
// goes through the keys in parts, each of which is read once for all of its blocks. Only maps need whole rows.
#pragma once

#include <algorithm>
#include <type_traits>

#include "attention/interventions.h"
#include "interface.h"
#include "observing/map.h"
#include "observing/thumbnail.h"
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
          before_(all.prefixes ? all.prefixes[sequence].length : 0),
          first_(all.starts[sequence] - before_),
          prefix_(before_ ? all.prefixes[sequence].first : 0),
          n_(all.starts[sequence + 1] - first_),
          attended_(n_ - (all.unattended ? all.unattended[sequence] : 0)),
          head_(head),
          kv_head_(all.kv_heads ? head / (all.heads / all.kv_heads) : head),
          columns_(rounded_up(n_, P::COLUMN_STEP)),
          size_(all.head_size),
          words_(size_ / P::PER_WORD),
          slot_(observation_ && observation_->statistics ? observation_->statistic_slots[head] : -1),
          map_(observation_, head, n_),
          thumbnail_(observation_, head),
          every_row_(all.output || slot_ >= 0 || thumbnail_.wanted()),
          blocks_edges_(blocks_edges(intervention_, head)),
          in_parts_(!map_.wanted() && (all.window ? std::min(n_, 2 * all.window + P::ROWS) : n_) > WHOLE),
          stride_(in_parts_ ? PART : columns_) {
        if (const Distances *distances = all.distances; distances && n_) {
            first_vector_ = distances->rows[distances->length + n_ - 2] / LANES * LANES;
            vector_count_ = rounded_up(distances->rows[distances->length - n_] + 1 - first_vector_, LANES);
        }
    }

    // Compute the outputs and observations of this head; false if out of memory.
    bool run(Work &work) {
        if (!every_row_ && !map_.wanted()) return true;
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
    bool lay_out() { return lay_out(before_, n_); }

    // The same, but of a window only the keys that some rows see.
    bool lay_out(int64_t start, int64_t stop) {
        if (!find_room()) return false;
        const int64_t first = all_.window ? std::max<int64_t>(0, start - all_.window) / P::PANEL * P::PANEL : 0;
        const int64_t last = all_.window ? std::min(columns_, rounded_up(stop + all_.window, P::COLUMN_STEP)) : columns_;
        lay_out_keys<P::PANEL>(rows(all_.k), first, n_, last, words_, keys_);
        if (all_.output) lay_out_values(rows(all_.v), n_, columns_, size_, values_);
        if (all_.distances && all_.distances->queries) compare_keys();
        return true;
    }

    // Attend one of several shares of the rows.
    void run_rows(int64_t share, int64_t shares, Work &work) { attend_rows(before_, n_, share, shares, work); }

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

    // One of the sequence's own tokens, of which those of the prefix are none.
    const Element *at(const void *x, int64_t token, int64_t head) const {
        return (const Element *)x + (first_ + token) * all_.token_stride + head * size_;
    }

    // The keys or values of all its tokens.
    SequenceRows<Element> rows(const void *x) const {
        return {at(x, 0, kv_head_), at(x, prefix_ - first_, kv_head_), before_, all_.token_stride};
    }

    Element *output(int64_t token) const {
        return (Element *)all_.output + ((first_ + token) * all_.heads + head_) * size_;
    }

    bool find_room() {
        const size_t matrix = rounded_up(columns_, P::PANEL) * words_ * 4;
        const size_t scores = P::ROWS * stride_ * 4, vectors = P::ROWS * size_ * 4, sums = in_parts_ ? STRIPE * size_ * 4 : 0;
        const size_t by_query = P::ROWS * vector_count_ * 4, by_key = rounded_up(n_, P::ROWS) * vector_count_ * 4;
        const size_t cells = thumbnail_.room(columns_, in_parts_ ? STRIPE : 0) * 4;
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
        if (thumbnail_.wanted()) thumbnail_.begin((float *)(memory + by_key), columns_, in_parts_ ? STRIPE : 0);
        return true;
    }

    // Copy the selected queries of a block; returns how many.
    int choose_rows(int64_t start, int64_t stop) {
        int rows = 0;
        for (int64_t i = start; i < stop; i++) {
            if (!every_row_ && map_.row(i) < 0) continue;
            std::memcpy(queries_ + rows * words_, at(all_.q, i, head_), words_ * 4);
            query_[rows++] = i;
        }
        return rows;
    }

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
        const bool averaged = map_.averaged(), mapped = map_.wanted() && !averaged;
        const bool kept = MEASURED || map_.wanted() || thumbnail_.wanted();
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
            if (averaged) map_.add(e, sum.sum, query_[r], keys.first, keys.last);
            if (mapped) map_.write(e, sum.sum, query_[r]);
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
        if (thumbnail_.wanted()) thumbnail_.begin_rows(stop - start);
        for (origin_ = 0; origin_ < n_; origin_ += PART) {
            for (int64_t first = start; first < stop; first += P::ROWS) {
                const int rows = choose_rows(first, std::min(first + P::ROWS, stop));
                Keys keys = visible(rows);
                keys.first = std::max(keys.first, origin_);
                keys.last = std::min(keys.last, origin_ + PART);
                if (keys.last <= keys.first) continue;  // none of them sees this part
                keys.columns = rounded_up(keys.last - keys.first, P::COLUMN_STEP);
                attend_part<MEASURED>(rows, keys, first - start, seen + first - start);
                work.add(2 * rows * keys.columns * size_);
            }
        }
        origin_ = 0;
        for (int64_t i = start; i < stop; i++) {
            Seen &one = seen[i - start];
            const bool none = blocks_edges_ && one.row.sum == 0;  // no key was left
            if (none) one.row.sum = 1;
            if (MEASURED && !none) measures_.add(one, i);
            if (thumbnail_.wanted()) thumbnail_.add_row(i - start, one.largest, one.row.sum, all_.scale, i);
            if (all_.output) write(sums_ + (i - start) * size_, one.row.sum, i);
        }
    }

    // Attend a block, which begins with row `first` of its stripe, to some of the keys, and add to the sums of its rows.
    template <bool MEASURED>
    void attend_part(int rows, const Keys &keys, int64_t first, Seen *seen) {
        compare(rows, keys);
        float factors[P::ROWS], *sums = sums_ + first * size_;
        const bool exact = MEASURED || thumbnail_.wanted();
        for (int r = 0; r < rows; r++) {
            if (thumbnail_.wanted()) thumbnail_.note(first + r, row(r), keys.first, keys.last);
            factors[r] = seen[r].rise_to(largest(row(r) + keys.first, keys.last - keys.first), all_.scale);
            seen[r].add(exact ? weigh<MEASURED, float, MEASURED>(r, keys, seen[r].largest)
                              : weigh<false, Element, false>(r, keys, seen[r].largest));
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

    const Attention &all_;
    const Observation *observation_;
    const Intervention *intervention_;
    // How many tokens are those of another sequence, where this one would begin if they were its own, and where they are.
    const int64_t before_, first_, prefix_;
    const int64_t n_, attended_, head_, kv_head_, columns_, size_, words_;
    const int slot_;
    const Map map_;
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

}  // namespace HEADLIGHT_NAMESPACE
