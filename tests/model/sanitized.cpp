// Runs every kernel over random shapes beside a naive one in double precision, for sanitizers to watch.
//
// Arrays are exactly as large as the interface says, each in memory of its own, so that a step beyond any of them is
// found; queries, keys and values are views into one array, off every boundary.
#include <omp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../../model/pytorch/kernels/cpp/interface.h"

#ifdef __x86_64__
#include <immintrin.h>

extern "C" {
HEADLIGHT_STEPS(float32_avx2)
HEADLIGHT_STEPS(float32_avx512)
HEADLIGHT_STEPS(bfloat16_avx512)
HEADLIGHT_STEPS(bfloat16_avx512_bf16)
HEADLIGHT_INT8(bfloat16_amx_int8)
HEADLIGHT_INT8(bfloat16_avx512_vnni_bf16)
HEADLIGHT_INT8(float32_avx512_vnni)
HEADLIGHT_INT8(float32_avx512)
HEADLIGHT_INT8(float32_avx_vnni)
HEADLIGHT_INT8(float32_avx2)
HEADLIGHT_BFLOAT16_WEIGHTS(bfloat16_avx2)
}

static float widen_half(uint16_t x) { return _cvtsh_ss(x); }
static uint16_t round_to_half(float x) { return _cvtss_sh(x, 0); }
#else
extern "C" {
HEADLIGHT_STEPS(float32_neon)
HEADLIGHT_BFLOAT16_WEIGHTS(bfloat16_neon)
HEADLIGHT_BFLOAT16_WEIGHTS(bfloat16_neon_bf16)
HEADLIGHT_INT8(float32_neon_dotprod)
HEADLIGHT_INT8(float32_neon_i8mm)
}

static float widen_half(uint16_t x) {
    __fp16 half;
    std::memcpy(&half, &x, 2);
    return half;
}
static uint16_t round_to_half(float x) {
    const __fp16 half = x;
    uint16_t bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}
#endif

using Attend = int (*)(const Attention *);
using AddNorm = int (*)(const Norm *);

namespace {

std::mt19937 generator(20);

float normal() { return std::normal_distribution<float>()(generator); }
int64_t up_to(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(generator); }

uint16_t round_to_bfloat16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float widen(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
float widen(float x) { return x; }
void assign(float &to, float x) { to = x; }
void assign(uint16_t &to, float x) { to = round_to_bfloat16(x); }

int failures = 0;

void expect(bool holds, const char *what, double got, double wanted, int64_t n) {
    if (holds) return;
    if (failures++ < 10) std::printf("%s: %g is not %g (a sequence of %ld)\n", what, got, wanted, (long)n);
}

// What is observed of one sequence, in arrays of its own.
struct Recorded {
    std::vector<float> statistics, special, maps, thumbnails;
    std::vector<uint16_t> half_maps;
    std::vector<int32_t> statistic_slots, head_slots, row_slots, thumbnail_slots, cell_of_row, columns;
    std::unique_ptr<uint8_t> finite{new uint8_t(1)};
    std::vector<int64_t> heads, rows, measured;

    Observation of(int64_t n, int64_t all_heads) {
        Observation observation{};
        if (up_to(2)) {
            for (int64_t h = 0; h < all_heads; h++) statistic_slots.push_back(-1);
            for (int64_t h = 0; h < all_heads; h++)
                if (up_to(1)) {
                    statistic_slots[h] = (int32_t)measured.size();
                    measured.push_back(h);
                }
            for (int64_t i = 0; i < n; i++) special.push_back((float)up_to(1));
            statistics.reserve(1), statistics.resize(measured.size() * 10);
            observation.statistics = statistics.data();
            observation.statistic_slots = statistic_slots.data();
            observation.statistic_heads = (int64_t)measured.size();
            special.reserve(1);
            observation.special = special.data();
        }
        if (up_to(2)) {
            for (int64_t h = 0; h < all_heads; h++) {
                head_slots.push_back(up_to(1) ? (int32_t)heads.size() : -1);
                if (head_slots.back() >= 0) heads.push_back(h);
            }
            const bool every = up_to(1);
            for (int64_t i = 0; i < n; i++) {
                const bool wanted = every || up_to(1);
                row_slots.push_back(wanted ? (int32_t)rows.size() : -1);
                if (wanted) rows.push_back(i);
            }
            observation.half = (int32_t)up_to(1);
            const size_t size = heads.size() * rows.size() * (size_t)n;
            if (observation.half)
                half_maps.resize(size), half_maps.reserve(1), observation.maps = half_maps.data();
            else
                maps.resize(size), maps.reserve(1), observation.maps = maps.data();
            row_slots.reserve(1);
            observation.head_slots = head_slots.data();
            observation.row_slots = every ? nullptr : row_slots.data();
            observation.map_heads = (int64_t)heads.size();
            observation.map_rows = (int64_t)rows.size();
            observation.finite = finite.get();
        }
        if (up_to(2)) {
            observation.row_cells = 1 + up_to(3), observation.column_cells = 1 + up_to(3);
            for (int64_t h = 0; h < all_heads; h++)
                thumbnail_slots.push_back(up_to(2) ? (int32_t)observation.thumbnail_heads++ : -1);
            for (int64_t i = 0; i < n; i++) cell_of_row.push_back((int32_t)up_to(observation.row_cells) - 1);
            for (observation.spans = up_to(5); (int64_t)columns.size() < 3 * observation.spans;) {
                const int64_t first = up_to(n);
                for (int64_t x : {up_to(observation.column_cells - 1), first, first + up_to(n - first)})
                    columns.push_back((int32_t)x);
            }
            thumbnails.resize((size_t)(observation.thumbnail_heads * observation.row_cells * observation.column_cells),
                              -INFINITY);
            thumbnails.reserve(1), cell_of_row.reserve(1), columns.reserve(1);
            observation.thumbnails = thumbnails.data();
            observation.thumbnail_slots = thumbnail_slots.data();
            observation.cell_of_row = cell_of_row.data();
            observation.columns = columns.data();
        }
        return observation;
    }
};

// What is changed in a sequence: some keys are hidden from some queries, and heads are scaled or averaged.
struct Changed {
    std::vector<uint8_t> means;
    std::vector<uint32_t> heads, queries, keys;
    std::vector<float> scales;

    Intervention of(int64_t n, int64_t all_heads) {
        const int64_t words = up_to(2);
        for (int64_t h = 0; h < all_heads; h++) means.push_back(!up_to(3)), scales.push_back(up_to(1) ? 1 : (float)up_to(4) / 2);
        const uint32_t every = up_to(3) ? 7 : ~0u;
        for (int64_t i = 0; i < words * all_heads; i++) heads.push_back((uint32_t)up_to(7));
        for (int64_t i = 0; i < words * n; i++) queries.push_back((uint32_t)up_to(7));
        for (int64_t i = 0; i < words * n; i++) keys.push_back(every == 7 ? (uint32_t)up_to(7) & (uint32_t)up_to(7) : every);
        for (auto *some : {&heads, &queries, &keys}) some->reserve(1);
        if (!up_to(3)) return Intervention{};
        return {heads.data(), queries.data(), keys.data(), words, n, scales.data(), means.data()};
    }
};

bool blocked(const Intervention *one, int64_t head, int64_t query, int64_t key) {
    for (int64_t i = 0; one && i < one->words; i++)
        if (one->heads[head * one->words + i] & one->queries[query * one->words + i] & one->keys[i * one->length + key])
            return true;
    return false;
}

template <class Element>
void try_attention(Attend attend, int64_t head_step, bool exact) {
    const int64_t edges[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65, 127, 129};
    const int64_t heads = 1 + up_to(3), size = head_step * (1 + up_to(2)), stride = 3 * heads * size + 32 * up_to(1);
    std::vector<int64_t> starts{0};
    for (int64_t i = up_to(4); i >= 0; i--) starts.push_back(starts.back() + (up_to(1) ? edges[up_to(13)] : up_to(70)));
    if (!up_to(9)) starts.push_back(starts.back() + (up_to(1) ? 512 : 1100));
    const int64_t sequences = (int64_t)starts.size() - 1, used = starts.back(), tokens = used + up_to(2);
    const int64_t off = 2 * up_to(3);
    std::vector<Element> packed((size_t)(off + tokens * stride));
    packed.reserve(1);
    for (Element &x : packed) assign(x, normal());
    const Element *q = packed.data() + off, *k = q + heads * size, *v = k + heads * size;
    std::vector<Element> output((size_t)(tokens * heads * size));
    output.reserve(1);
    std::vector<Recorded> recorded((size_t)sequences);
    std::vector<Observation> observations;
    for (int64_t i = 0; i < sequences; i++) observations.push_back(recorded[i].of(starts[i + 1] - starts[i], heads));
    const float scale = 1 / std::sqrt((float)size);
    const bool mixed = up_to(3) > 0;
    Attention all{q, k, v, stride, mixed ? output.data() : nullptr, starts.data(), tokens, sequences, heads,
                  size, scale, up_to(4) ? observations.data() : nullptr};
    std::list<Changed> changed;
    std::vector<Intervention> interventions;
    for (int64_t i = 0; i < sequences; i++)
        interventions.push_back(changed.emplace_back().of(starts[i + 1] - starts[i], heads));
    if (up_to(1)) all.interventions = interventions.data();
    const int outcome = attend(&all);
    expect(outcome == DONE, "the outcome", outcome, DONE, used);
    const double bound = exact ? 2e-5 : 4e-2;
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t first = starts[b], n = starts[b + 1] - first;
        const Intervention *one = all.interventions ? &interventions[b] : nullptr;
        for (int64_t h = 0; h < heads; h++) {
            const double factor = one && one->scales ? one->scales[h] : 1;
            std::vector<double> mean((size_t)(one && one->means && one->means[h] ? size : 0));
            int64_t map = -1, slot = -1;
            if (all.observations && observations[b].maps) map = observations[b].head_slots[h];
            if (all.observations && observations[b].statistics) slot = observations[b].statistic_slots[h];
            double sums[10] = {};
            int64_t near_ties = 0;  // rows whose largest weight rounding may have chosen
            const Observation none{}, &seen = all.observations ? observations[b] : none;
            const int64_t thumbnail = seen.thumbnails ? seen.thumbnail_slots[h] : -1;
            std::vector<double> cells((size_t)(seen.row_cells * seen.column_cells), -INFINITY);
            for (int64_t i = 0; i < n; i++) {
                std::vector<double> p((size_t)n);
                double most = -1e300, total = 0;
                for (int64_t j = 0; j < n; j++) {
                    double dot = 0;
                    for (int64_t d = 0; d < size; d++)
                        dot += (double)widen(q[(first + i) * stride + h * size + d]) *
                               widen(k[(first + j) * stride + h * size + d]);
                    p[j] = blocked(one, h, i, j) ? -INFINITY : dot * scale;
                    most = std::fmax(most, p[j]);
                }
                for (double &x : p) total += x = std::exp(x - most);
                const bool empty = total == 0;  // no key is left
                for (double &x : p) x /= empty ? 1 : total;
                for (int64_t j = 0; j < n; j++) {
                    sums[0] -= p[j] > 0 ? p[j] * std::log(p[j]) : 0;
                    sums[2] += p[j] * (double)std::llabs(i - j);
                    if (slot >= 0) sums[6] += p[j] * observations[b].special[j];
                }
                sums[1] += empty ? 0 : 1 / total;
                sums[3] += p[i];
                if (i > 0) sums[4] += p[i - 1];
                if (i + 1 < n) sums[5] += p[i + 1];
                const int64_t peak = std::max_element(p.begin(), p.end()) - p.begin();
                near_ties += !empty && std::count_if(p.begin(), p.end(), [&](double x) { return p[peak] - x < 1e-5; }) > 1;
                for (int64_t shift = -1; shift <= 1; shift++)
                    if (!empty && peak == i + shift) sums[shift < 0 ? 8 : shift ? 9 : 7] += 1;
                for (int64_t s = 0; thumbnail >= 0 && seen.cell_of_row[i] >= 0 && s < seen.spans; s++) {
                    const int32_t *span = seen.columns + 3 * s;
                    double &cell = cells[(size_t)(seen.cell_of_row[i] * seen.column_cells + span[0])];
                    cell = std::fmax(cell, 0);
                    for (int64_t j = span[1]; j < span[2]; j++) cell = std::fmax(cell, p[j]);
                }
                const int64_t row = map < 0 ? -1 : observations[b].row_slots ? observations[b].row_slots[i] : i;
                for (int64_t j = 0; row >= 0 && j < n; j++) {
                    const int64_t place = (map * observations[b].map_rows + row) * n + j;
                    if (observations[b].half)
                        expect(std::fabs(widen_half(recorded[b].half_maps[place]) - p[j]) <= 1e-5 + p[j] / 2048,
                               "a weight in half", widen_half(recorded[b].half_maps[place]), p[j], n);
                    else
                        expect(std::fabs(recorded[b].maps[place] - p[j]) < 1e-5, "a weight", recorded[b].maps[place], p[j],
                               n);
                }
                for (int64_t d = 0; mixed && d < size; d++) {
                    double wanted = 0;
                    for (int64_t j = 0; j < n; j++) wanted += p[j] * widen(v[(first + j) * stride + h * size + d]);
                    const double got = widen(output[((first + i) * heads + h) * size + d]);
                    if (mean.empty())
                        expect(std::fabs(got - wanted * factor) < bound * std::fmax(1, factor), "an output", got, wanted * factor, n);
                    else
                        mean[d] += wanted / (double)n * factor;
                }
            }
            for (size_t d = 0; mixed && d < mean.size(); d++)
                for (int64_t i = 0; i < n; i++) {
                    const double got = widen(output[((first + i) * heads + h) * size + (int64_t)d]);
                    expect(std::fabs(got - mean[d]) < bound * std::fmax(1, factor), "a mean", got, mean[d], n);
                }
            for (size_t i = 0; thumbnail >= 0 && i < cells.size(); i++) {
                const double got = recorded[b].thumbnails[(size_t)thumbnail * cells.size() + i];
                expect(got == cells[i] || std::fabs(got - cells[i]) < 1e-5, "a cell", got, cells[i], n);
            }
            for (int i = 0; slot >= 0 && n > 0 && i < 10; i++) {
                const double got = recorded[b].statistics[slot * 10 + i], wanted = sums[i] / (double)n;
                const double open = i < 7 ? 0 : (double)near_ties / (double)n;
                expect(std::fabs(got - wanted) < open + 2e-5 * std::fmax(1, wanted), "a statistic", got, wanted, n);
            }
        }
    }
}

template <class Element>
void try_norm(AddNorm add_norm) {
    const int64_t tokens = up_to(20), size = 1 + up_to(100);
    std::vector<float> x((size_t)(tokens * size)), gain, bias, output(x.size());
    x.reserve(1);
    std::vector<Element> added(x.size()), rounded(x.size());
    output.reserve(1), added.reserve(1), rounded.reserve(1);
    for (float &value : x) value = normal();
    for (Element &value : added) assign(value, normal());
    for (int64_t i = 0; i < size; i++) gain.push_back(normal()), bias.push_back(normal());
    const std::vector<float> before = x;
    const bool in_place = up_to(1);
    const bool normed = size > 7 && up_to(1);  // what is added, too
    const Norm all{x.data(), added.data(), gain.data(), bias.data(), in_place ? x.data() : output.data(),
                   up_to(1) ? rounded.data() : nullptr, tokens, size, 1e-5f, nullptr, 0,
                   normed ? gain.data() : nullptr, normed ? bias.data() : nullptr};
    const auto normalised = [&](const std::vector<double> &s) {
        double mean = 0, variance = 0;
        for (double value : s) mean += value / (double)size;
        for (double value : s) variance += (value - mean) * (value - mean) / (double)size;
        std::vector<double> found;
        for (int64_t i = 0; i < size; i++) found.push_back((s[i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + bias[i]);
        return found;
    };
    expect(add_norm(&all) == DONE, "the outcome of a norm", 0, 0, size);
    for (int64_t t = 0; t < tokens; t++) {
        std::vector<double> s;
        for (int64_t i = 0; i < size; i++) s.push_back(widen(added[t * size + i]));
        if (normed) s = normalised(s);
        for (int64_t i = 0; i < size; i++) s[i] += before[t * size + i];
        const std::vector<double> expected = normalised(s);
        for (int64_t i = 0; i < size; i++) {
            const double wanted = expected[i], got = all.output[t * size + i];
            expect(std::fabs(got - wanted) < 1e-4, "a norm", got, wanted, size);
            if (all.rounded) {
                const double close = widen(rounded[t * size + i]);
                expect(std::fabs(close - got) <= std::fabs(got) / 128, "a rounded norm", close, got, size);
            }
        }
    }
}

using Embed = int (*)(const Embedding *);

void try_embedding(Embed embed) {
    const int64_t size = 1 + up_to(40), tokens = 1 + up_to(5), positions = 1 + up_to(9), segments = up_to(3);
    std::vector<int64_t> starts{0}, ids, kinds;
    for (int64_t i = up_to(3); i >= 0; i--) starts.push_back(starts.back() + up_to(positions));
    const int64_t rows = starts.back() + up_to(2);
    for (int64_t i = 0; i < rows; i++) ids.push_back(up_to(tokens - 1)), kinds.push_back(up_to(std::max<int64_t>(segments, 1) - 1));
    ids.reserve(1), kinds.reserve(1);
    std::vector<float> token((size_t)(tokens * size)), position((size_t)(positions * size)),
        segment((size_t)(segments * size)), gain((size_t)size), bias((size_t)size), output((size_t)(rows * size));
    for (auto *numbers : {&token, &position, &segment, &gain, &bias})
        for (float &value : *numbers) value = normal();
    output.reserve(1);
    const bool placed = up_to(3) > 0;
    const Embedding all{ids.data(), kinds.data(), starts.data(), token.data(), placed ? position.data() : nullptr,
                        segments ? segment.data() : nullptr, tokens, placed ? positions : 0, segments, gain.data(),
                        bias.data(), output.data(), rows, (int64_t)starts.size() - 1, size, 1e-5f};
    expect(embed(&all) == DONE, "the outcome of an embedding", 0, 0, rows);
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = 0;
        for (size_t i = 0; i + 1 < starts.size(); i++)
            if (row >= starts[i] && row < starts[i + 1]) at = row - starts[i];
        std::vector<double> s;
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < size; j++) {
            s.push_back((double)token[ids[row] * size + j] + (placed ? position[at * size + j] : 0) +
                        (segments ? segment[(segments > 1 ? kinds[row] : 0) * size + j] : 0));
            mean += s.back() / (double)size;
        }
        for (double value : s) variance += (value - mean) * (value - mean) / (double)size;
        for (int64_t j = 0; j < size; j++) {
            const double wanted = (s[j] - mean) / std::sqrt(variance + 1e-5) * gain[j] + bias[j];
            expect(std::fabs(output[row * size + j] - wanted) < 1e-4, "an embedding", output[row * size + j], wanted, size);
        }
    }
    Embedding wrong = all;
    wrong.token_count = 0;
    expect(embed(&wrong) == (rows ? BAD_ARGUMENT : DONE), "a token of no table", 0, 0, rows);
}

using Multiply = int (*)(const Product *);

double gelu(double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }
double gelu_tanh(double x) { return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2; }
double silu(double x) { return x / (1 + std::exp(-x)); }

double activated(double x, int32_t activation) {
    switch (activation) {
        case RELU: return x > 0 ? x : 0;
        case GELU: return gelu(x);
        case GELU_TANH: return gelu_tanh(x);
        case SILU: return silu(x);
        default: return x;
    }
}

// Lay out a matrix (out, in) in panels, as large as the interface says, on a cache line's boundary. So many bytes of a column lie
// together as a `word` has: two for products in float32 that widen them, with columns in the order of linear/widened.h.
template <class Element>
struct Panels {
    Element *numbers;
    Panels(const std::vector<Element> &weight, int64_t in, int64_t out, int64_t columns, int64_t word = 4) {
        const bool widened = word == 2;
        const int64_t panels = (out + columns - 1) / columns, pair = word / sizeof(Element), filled = (in + pair - 1) / pair * pair;
        const size_t bytes = (size_t)(panels * filled * columns) * sizeof(Element);
        if (posix_memalign((void **)&numbers, 64, bytes)) std::abort();
        std::memset(numbers, 0, bytes);
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) {
                const int64_t column = o % columns, place = widened ? column / 4 % 2 * 8 + column / 8 * 4 + column % 4 : column;
                numbers[((o / columns * filled + i / pair * pair) * columns) + place * pair + i % pair] = weight[o * in + i];
            }
    }
    Panels(const Panels &) = delete;
    ~Panels() { std::free(numbers); }
};

// Some rows of a weight, in a type that a file may have, which `rounded` gets too. They end where no memory is: sanitizers
// do not watch loads that leave lanes out.
class Part {
   public:
    StoredRows rows;

    Part(float *rounded, int64_t count, int64_t in) : rows{nullptr, count, (int32_t)up_to(2)} {
        const size_t size = rows.type == FLOAT32 ? 4 : 2, bytes = (size_t)(count * in) * size;
        const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
        mapped_ = whole + page;
        start_ = (char *)mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start_ == MAP_FAILED || mprotect(start_ + whole, page, PROT_NONE)) std::abort();
        char *first = start_ + whole - bytes;
        rows.first = first;
        for (int64_t i = 0; i < count * in; i++) {
            float &x = rounded[i];
            const uint16_t half = rows.type == FLOAT16 ? round_to_half(x) : round_to_bfloat16(x);
            if (rows.type != FLOAT32) x = rows.type == FLOAT16 ? widen_half(half) : widen(half);
            std::memcpy(first + (size_t)i * size, rows.type == FLOAT32 ? (const void *)&x : &half, size);
        }
    }
    Part(const Part &) = delete;
    ~Part() { munmap(start_, mapped_); }

   private:
    char *start_;
    size_t mapped_;
};

// Split a weight (out, in) into parts.
std::list<Part> stored_parts(std::vector<float> &weight, int64_t in, int64_t out) {
    std::list<Part> parts;
    for (int64_t o = 0, count; o < out; o += count) {
        count = 1 + up_to(out - o - 1);
        parts.emplace_back(weight.data() + o * in, count, in);
    }
    return parts;
}

// A product with panels, also of bfloat16 in float32, with words of eight bytes from numbers that it rounds; or, without
// `columns`, in float32 with weights as a file holds them.
template <class Element, class Weight = Element>
void try_product(Multiply multiply_all, int64_t columns, int64_t word = sizeof(Weight) < sizeof(Element) ? 2 : 4) {
    const int64_t pair = 4 / sizeof(Element), tokens = up_to(30), out = 1 + up_to(50);
    const int64_t in = pair * (1 + up_to(up_to(9) ? 300 : 3900) / pair);
    std::vector<Element> x((size_t)(tokens * in)), y((size_t)(tokens * out));
    std::vector<Weight> weight((size_t)(out * in));
    std::vector<float> bias((size_t)out);
    x.reserve(1), y.reserve(1);
    for (Element &value : x) assign(value, normal());
    for (Weight &value : weight) assign(value, normal());
    for (float &value : bias) value = normal();
    Product all{{nullptr, bias.data(), in, out, (int32_t)up_to(4)}, x.data(), y.data(), tokens};
    std::unique_ptr<Panels<Weight>> panels;
    std::list<Part> parts;
    std::vector<StoredRows> rows;
    if constexpr (std::is_same_v<Weight, float>)
        if (!columns) parts = stored_parts(weight, in, out);
    for (const Part &part : parts) rows.push_back(part.rows);
    all.linear.stored = rows.data(), all.linear.parts = (int64_t)rows.size();
    if (columns) all.linear.panels = (panels = std::make_unique<Panels<Weight>>(weight, in, out, columns, word))->numbers;
    expect(multiply_all(&all) == DONE, "the outcome of a product", 0, 0, tokens);
    const auto sum_of = [&](int64_t t, int64_t o, double &size) {
        double sum = bias[o];
        for (int64_t i = 0; i < in; i++) {
            const float given = widen(x[t * in + i]), read = word == 8 ? widen(round_to_bfloat16(given)) : given;
            const double term = (double)read * widen(weight[o * in + i]);
            sum += term;
            size += std::fabs(term);
        }
        return sum;
    };
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t o = 0; o < out; o++) {
            double size = 1;
            const double wanted = activated(sum_of(t, o, size), all.linear.activation), got = widen(y[t * out + o]);
            const double rounding = pair > 1 ? std::fabs(wanted) / 256 : 0;
            expect(std::fabs(got - wanted) < 1e-6 * size + rounding, "a product", got, wanted, in);
        }
    if (columns || out % 2) return;
    all.linear.gated = 1;
    expect(multiply_all(&all) == DONE, "the outcome of a product with a gate", 0, 0, tokens);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t o = 0; o < out / 2; o++) {
            double size = 1, of_value = 1;
            const double gate = activated(sum_of(t, o, size), all.linear.activation), value = sum_of(t, out / 2 + o, of_value);
            const double wanted = gate * value, got = widen(y[t * (out / 2) + o]);
            expect(std::fabs(got - wanted) < 2e-6 * size * of_value, "a product with a gate", got, wanted, in);
        }
}

// Products of eight bits, of numbers of `steps` on either side of 0, each weight w of which is stored as w + `added`, with a scale
// for each `group` of inputs.
template <class Element>
void try_int8_product(Multiply multiply_all, int64_t steps, int64_t group, int64_t added, int64_t columns, int64_t word = 4) {
    const int64_t tokens = up_to(30), out = 1 + up_to(50), in = 4 * (1 + up_to(up_to(9) ? 80 : 1000));
    std::vector<Element> x((size_t)(tokens * in)), y((size_t)(tokens * out));
    std::vector<uint8_t> weight((size_t)(out * in));
    const int64_t groups = (in + group - 1) / group;
    std::vector<float> bias((size_t)out), scales((size_t)(groups * out)), smoothing((size_t)in);
    x.reserve(1), y.reserve(1);
    for (Element &value : x) assign(value, normal());
    for (uint8_t &value : weight) value = (uint8_t)(added - steps + up_to(2 * steps));
    for (auto *numbers : {&bias, &scales, &smoothing})
        for (float &value : *numbers) value = 0.1f + std::fabs(normal());
    const Panels<uint8_t> panels(weight, in, out, columns, word);
    const Linear linear{panels.numbers, bias.data(), in, out, (int32_t)up_to(4), scales.data(), smoothing.data()};
    const Product all{linear, x.data(), y.data(), tokens};
    expect(multiply_all(&all) == DONE, "the outcome of a product of integers", 0, 0, tokens);
    for (int64_t t = 0; t < tokens; t++) {
        std::vector<float> smooth, most((size_t)groups);
        for (int64_t i = 0; i < in; i++) {
            smooth.push_back(widen(x[t * in + i]) * smoothing[i]);
            most[i / group] = std::max(most[i / group], std::fabs(smooth.back()));
        }
        for (int64_t o = 0; o < out; o++) {
            double exact = bias[o], terms = 0;  // the sums of groups, which are added in float32
            for (int64_t g = 0; g < groups; g++) {
                const float by = (float)steps / most[g];
                double sum = 0;
                for (int64_t i = g * group; i < std::min(in, (g + 1) * group); i++)
                    sum += std::nearbyint(smooth[i] * by) * (added ? weight[o * in + i] - added : (int8_t)weight[o * in + i]);
                sum *= scales[g * out + o] * (most[g] / (float)steps);
                exact += sum, terms += groups > 1 ? std::fabs(exact) + std::fabs(sum) : 0;
            }
            const double wanted = activated(exact, all.linear.activation), got = widen(y[t * out + o]);
            const double rounding = sizeof(Element) < 4 ? 1.0 / 256 : 2e-6;
            expect(std::fabs(got - wanted) <= 1e-6 + rounding * std::fabs(wanted) + 4e-7 * std::fabs(exact) + 2e-7 * terms, "a product of integers", got, wanted, in);
        }
    }
    Product wrong = all;
    wrong.linear.inputs--;
    expect(multiply_all(&wrong) == BAD_ARGUMENT, "no whole words", 0, BAD_ARGUMENT, in);
}

// A product, of which the one that `failing` counts down to finds no memory.
struct {
    Multiply multiply;
    int64_t done, failing;
} products;

int multiply_or_fail(const Product *all) {
    if (omp_get_thread_num() == 0 && products.done++ == products.failing) return NO_MEMORY;
    return products.multiply(all);
}

std::vector<float> random_matrix(int64_t rows, int64_t columns) {
    std::vector<float> made((size_t)(rows * columns));
    for (float &x : made) x = normal() / 8;
    return made;
}

// A step of a pass during which somebody stops it, at the step of that kind that `left` counts down to.
struct {
    AddNorm add_norm;
    Progress *progress;
    int64_t left;
} stopping;

int add_norm_and_stop(const Norm *all) {
    if (omp_get_thread_num() == 0 && stopping.left-- == 0) __atomic_store_n(&stopping.progress->stopping, 1, __ATOMIC_RELAXED);
    return stopping.add_norm(all);
}

// Passes through some layers that are stopped before they begin, and at one of their norms, of which a layer has two.
void try_stopping(Layers all) {
    Progress progress{0, 0, 1};
    all.progress = &progress;
    products.done = 0;
    int outcome = headlight_run_layers(&all);
    expect(outcome == STOPPED && products.done == 0, "layers that were stopped before", outcome, STOPPED, all.tokens);
    expect(progress.steps == 0 && progress.layers == 0, "what they count", (double)progress.steps, 0, all.tokens);
    progress.stopping = 0;
    const int64_t last = up_to(2 * (all.count - all.ends_observing));  // beyond the last norm nothing stops them
    stopping = {all.add_norm, &progress, last};
    all.add_norm = add_norm_and_stop;
    outcome = headlight_run_layers(&all);
    const bool stopped = last < 2 * (all.count - all.ends_observing);
    expect(outcome == (stopped ? STOPPED : DONE), "the outcome of stopped layers", outcome, stopped, all.tokens);
    expect(progress.layers == (stopped ? last / 2 : all.count), "layers", (double)progress.layers, (double)last, all.tokens);
}

// Some layers in one call, beside the same kernels called one by one; now and then a product fails.
void try_layers(Attend attend, AddNorm add_normed, Multiply multiply_all, int64_t columns) {
    const int64_t heads = 1 + up_to(1), size = 32 * heads, inner = 1 + up_to(40), count = 1 + up_to(2);
    std::vector<int64_t> starts{0};
    for (int64_t i = up_to(3); i >= 0; i--) starts.push_back(starts.back() + up_to(20));
    const int64_t sequences = (int64_t)starts.size() - 1, row = 3 * size;
    const int64_t tokens = std::max<int64_t>(1, starts.back() + up_to(3));  // none never comes here
    const Attention attention{nullptr, nullptr, nullptr, 0, nullptr, starts.data(), tokens, sequences, heads, 32,
                              0.25f, nullptr};
    std::list<std::vector<float>> biases;
    std::vector<std::unique_ptr<Panels<float>>> laid_out;
    const auto linear = [&](int64_t in, int64_t out, Activation activation = NONE) {
        laid_out.emplace_back(new Panels<float>(random_matrix(out, in), in, out, columns));
        biases.push_back(random_matrix(1, out));
        return Linear{laid_out.back()->numbers, biases.back().data(), in, out, activation};
    };
    std::vector<float> gain((size_t)size, 1.5f), bias((size_t)size, 0.1f);
    std::vector<Layer> layers;
    std::vector<std::vector<float>> states, projections;
    std::vector<float *> to;
    std::vector<void *> into;
    for (int64_t i = 0; i < count; i++) {
        layers.push_back({linear(size, row), linear(size, size), linear(size, inner, GELU), linear(inner, size), gain.data(),
                          bias.data(), gain.data(), bias.data()});
        states.emplace_back((size_t)(tokens * size)), projections.emplace_back((size_t)(tokens * row));
        to.push_back(up_to(1) ? states.back().data() : nullptr);
        into.push_back(up_to(1) ? projections.back().data() : nullptr);
    }
    std::vector<Recorded> recorded((size_t)sequences);
    std::vector<Observation> observations;
    for (int64_t i = 0; i < sequences; i++) observations.push_back(recorded[i].of(starts[i + 1] - starts[i], heads));
    const std::vector<const Observation *> observed((size_t)count, up_to(1) ? observations.data() : nullptr);
    const std::vector<float> x = random_matrix(tokens, size);
    std::vector<float> mixed(x.size()), stream(x.size()), narrow(x.size()), wide((size_t)(tokens * std::max(row, inner)));
    const bool ends = up_to(1), fails = !up_to(4);
    products = {multiply_all, 0, -1};
    Layers all{multiply_or_fail, attend, add_normed, layers.data(), count, tokens, size, 4, 1e-5f, x.data(),
               nullptr, mixed.data(), nullptr, 0, wide.data(), narrow.data(), std::max(row, inner), stream.data(), to.data(), into.data(),
               observed.data(), &attention, ends};
    if (!up_to(2)) try_stopping(all);
    std::vector<int64_t> chosen;  // rows of the last state
    for (int64_t token = 0; token < tokens; token++)
        if (up_to(1)) chosen.push_back(token);
    const bool chooses = !ends && !chosen.empty() && up_to(1);
    if (chooses) all.chosen = chosen.data(), all.chosen_count = (int64_t)chosen.size();
    Progress progress{};
    if (up_to(1)) all.progress = &progress;
    const int64_t most = 4 * count - 3 * ends;
    products.done = 0, products.failing = fails ? up_to(most - 1) : -1;
    const int outcome = headlight_run_layers(&all);
    expect(outcome == (fails ? NO_MEMORY : DONE), "the outcome of layers", outcome, fails, tokens);
    if (fails) return;
    const int64_t steps = most + 3 * count - 2 * ends - (ends && !observed[0]) + 2 * chooses;  // attention and two norms, too
    expect(progress.layers == (all.progress ? count : 0), "layers", (double)progress.layers, (double)count, tokens);
    expect(progress.steps == (all.progress ? steps : 0), "steps", (double)progress.steps, (double)steps, tokens);
    expect(products.done == most, "products", (double)products.done, (double)most, count);

    std::vector<float> state = x, again = mixed;
    for (int64_t i = 0; i < count; i++) {
        const auto product = [&](const Linear &by, const std::vector<float> &of) {
            std::vector<float> result((size_t)(tokens * by.outputs));
            const Product one{by, of.data(), result.data(), tokens};
            expect(multiply_all(&one) == DONE, "a product", 0, 0, i);
            return result;
        };
        const std::vector<float> qkv = product(layers[i].qkv, state);
        expect(!into[i] || projections[i] == qkv, "the projections", 0, 0, i);
        if (ends && i + 1 == count) break;
        Attention one = attention;
        one.q = qkv.data(), one.k = qkv.data() + size, one.v = qkv.data() + 2 * size;
        one.token_stride = row, one.output = again.data();
        expect(attend(&one) == DONE, "attention", 0, 0, i);
        const auto add_norm = [&](const std::vector<float> &added) {
            const Norm norm{state.data(), added.data(), gain.data(), bias.data(), state.data(), nullptr, tokens, size, 1e-5f};
            expect(add_normed(&norm) == DONE, "a norm", 0, 0, i);
        };
        add_norm(product(layers[i].output, again));
        add_norm(product(layers[i].outer, product(layers[i].inner, state)));
        if (chooses && i + 1 == count) {
            const float *last = to[i] ? states[i].data() : stream.data();
            for (const int64_t token : chosen) {
                const bool same = std::equal(last + token * size, last + (token + 1) * size, state.data() + token * size);
                expect(same, "a chosen row", 0, 1, token);
            }
        } else {
            expect(!to[i] || states[i] == state, "a state", 0, 0, i);
        }
    }
}

// Long steps count their progress: one of them every 64 million multiplications.
void try_counting(Attend attend, Multiply multiply_all, int64_t columns) {
    const int64_t tokens = 1024, starts[] = {0, tokens}, size = 128, in = 512, out = 512;
    std::vector<float> qkv((size_t)(tokens * 3 * size), 0.5f), mixed((size_t)(tokens * size));
    int64_t steps = 0;
    Attention one{qkv.data(), qkv.data() + size, qkv.data() + 2 * size, 3 * size, mixed.data(), starts, tokens, 1, 1, size,
                  0.25f, nullptr};
    expect(attend(&one) == DONE && steps == 0, "attention that is not watched", (double)steps, 0, tokens);
    one.steps = &steps;
    const int64_t wanted = 2 * tokens * tokens * size >> 26;
    expect(attend(&one) == DONE && steps >= wanted - 1 && steps <= wanted, "steps of attention", (double)steps, (double)wanted, tokens);
    steps = 0;
    std::vector<float> x((size_t)(tokens * in), 0.5f), y((size_t)(tokens * out)), weight((size_t)(out * in), 0.5f), bias((size_t)out);
    const Panels<float> panels(weight, in, out, columns);
    const Product product{{panels.numbers, bias.data(), in, out, NONE}, x.data(), y.data(), tokens, &steps};
    expect(multiply_all(&product) == DONE && steps >= 1, "steps of a product", (double)steps, 2, tokens);
}

// A sequence that begins with tokens of another has the bits that it has when they are its own.
template <class Element>
void try_prefixes(Attend attend, int64_t head_step) {
    const int64_t heads = 1 + up_to(2), size = head_step * (1 + up_to(1)), stride = 3 * heads * size;
    const int64_t carrier = 2 + up_to(up_to(9) ? 90 : 700), length = 1 + up_to(carrier - 1), own = 1 + up_to(40);
    const int64_t starts[] = {0, carrier, carrier + own}, whole[] = {0, length + own};
    std::vector<Element> packed((size_t)(starts[2] * stride)), joined((size_t)(whole[1] * stride));
    for (Element &x : packed) assign(x, normal());
    std::copy(packed.begin(), packed.begin() + length * stride, joined.begin());
    std::copy(packed.begin() + carrier * stride, packed.end(), joined.begin() + length * stride);
    const int64_t width = heads * size;
    std::vector<Element> output((size_t)(starts[2] * width)), expected((size_t)(whole[1] * width));
    const auto described = [&](const std::vector<Element> &x, std::vector<Element> &into, const int64_t *begins, int64_t count) {
        Attention one{x.data(), x.data() + width, x.data() + 2 * width, stride, into.data(), begins, begins[count], count,
                      heads, size, 1 / std::sqrt((float)size), nullptr};
        one.causal = 1;
        return one;
    };
    const Prefix prefixes[] = {{0, 0}, {0, length}};
    Attention shared = described(packed, output, starts, 2), apart = described(joined, expected, whole, 1);
    shared.prefixes = prefixes;
    expect(attend(&shared) == DONE && attend(&apart) == DONE, "the outcome with a prefix", 0, DONE, length);
    const bool same = std::equal(output.begin() + carrier * width, output.end(), expected.begin() + length * width);
    expect(same, "what follows a prefix", 0, 1, length + own);
}

void refuse(Attend attend) {
    float x[256] = {};
    const int64_t whole[] = {0, 2}, backwards[] = {0, 2, 1}, beyond[] = {0, 9};
    const int32_t far[] = {5};
    float room[7];
    const Observation outside{room, far, x, nullptr, nullptr, nullptr, nullptr, 1, 0, 0, 0};
    const Attention good{x, x, x, 32, x + 64, whole, 2, 1, 1, 32, 1, nullptr};
    const Prefix beyond_tokens[] = {{1, 2}}, backwards_of_all[] = {{0, -1}}, fine[] = {{0, 1}};
    Attention bad[12];
    for (Attention &one : bad) one = good;
    bad[0].q = nullptr;
    bad[1].head_size = 3;
    bad[2].token_stride = 16;
    bad[3].starts = beyond;
    bad[4].starts = backwards, bad[4].sequences = 2;
    bad[5].heads = 0;
    bad[6].observations = &outside;
    bad[7].starts = nullptr;
    for (int i = 8; i < 12; i++) bad[i].prefixes = fine, bad[i].causal = i != 10;
    bad[8].prefixes = beyond_tokens;
    bad[9].prefixes = backwards_of_all;
    const Intervention none{};
    bad[11].interventions = &none;
    expect(attend(nullptr) == BAD_ARGUMENT, "nothing", 0, BAD_ARGUMENT, 0);
    for (int i = 0; i < 12; i++) expect(attend(&bad[i]) == BAD_ARGUMENT, "a bad argument", i, BAD_ARGUMENT, 0);
    const Layers nothing{};
    expect(headlight_run_layers(&nothing) == BAD_ARGUMENT, "no layers", 0, BAD_ARGUMENT, 0);
}

// All steps in float32, for one set of instructions.
void try_steps(int rounds, Attend attend, AddNorm add_norm, Multiply own, int64_t columns, int64_t head_step,
               int (*embed)(const Embedding *)) {
    refuse(attend);
    try_counting(attend, own, columns);
    for (int i = 0; i < rounds; i++) {
        try_attention<float>(attend, head_step, true);
        try_prefixes<float>(attend, head_step);
        try_norm<float>(add_norm);
        try_layers(attend, add_norm, own, columns);
        try_product<float>(own, columns);
        try_embedding(embed);
    }
}

#define INT8(kernels) \
    headlight_int8_multiply_##kernels, headlight_int8_steps_##kernels, headlight_int8_group_##kernels, headlight_int8_added_##kernels

#ifdef __x86_64__
void try_set(const std::string &set, int rounds) {
    if (set == "avx2")
        try_steps(rounds, headlight_attend_float32_avx2, headlight_add_norm_float32_avx2, headlight_multiply_float32_avx2,
                  headlight_columns_float32_avx2, 8, headlight_embed_float32_avx2);
    if (set == "avx512")
        try_steps(rounds, headlight_attend_float32_avx512, headlight_add_norm_float32_avx512,
                  headlight_multiply_float32_avx512, headlight_columns_float32_avx512, 16, headlight_embed_float32_avx512);
    if (set == "avx512_bf16") expect(headlight_enable_amx() == 1, "permission to use tiles", 0, 1, 0);
    for (int i = 0; i < rounds; i++) {
        if (set == "avx2") {
            try_product<float, uint16_t>(headlight_multiply_bfloat16_avx2, headlight_columns_bfloat16_avx2);
            try_product<float>(headlight_stored_multiply_float32_avx2, 0);
            try_int8_product<float>(INT8(float32_avx2), headlight_columns_float32_avx2);
        }
        if (set == "avx_vnni")
            try_int8_product<float>(INT8(float32_avx_vnni), headlight_columns_float32_avx2);
        if (set == "avx512") {
            try_attention<uint16_t>(headlight_attend_bfloat16_avx512, 16, false);
            try_prefixes<uint16_t>(headlight_attend_bfloat16_avx512, 16);
            try_norm<uint16_t>(headlight_add_norm_bfloat16_avx512);
            try_product<uint16_t>(headlight_multiply_bfloat16_avx512, headlight_columns_bfloat16_avx512);
            try_product<float>(headlight_stored_multiply_float32_avx512, 0);
            try_int8_product<float>(INT8(float32_avx512), headlight_columns_float32_avx512);
        }
        if (set == "avx512_vnni")
            try_int8_product<float>(INT8(float32_avx512_vnni), headlight_columns_float32_avx512);
        if (set == "amx_int8")
            try_int8_product<uint16_t>(INT8(bfloat16_amx_int8), headlight_columns_bfloat16_avx512_bf16);
        if (set == "avx512_vnni_bf16")
            try_int8_product<uint16_t>(INT8(bfloat16_avx512_vnni_bf16), headlight_columns_bfloat16_avx512_bf16);
        if (set == "avx512_bf16") {
            try_attention<uint16_t>(headlight_attend_bfloat16_avx512_bf16, 16, false);
            try_prefixes<uint16_t>(headlight_attend_bfloat16_avx512_bf16, 16);
            try_norm<uint16_t>(headlight_add_norm_bfloat16_avx512_bf16);
            try_attention<uint16_t>(headlight_attend_bfloat16_amx, 32, false);
            try_prefixes<uint16_t>(headlight_attend_bfloat16_amx, 32);
            try_product<uint16_t>(headlight_multiply_bfloat16_avx512_bf16, headlight_columns_bfloat16_avx512_bf16);
            try_product<uint16_t>(headlight_multiply_bfloat16_amx, headlight_columns_bfloat16_amx);
        }
    }
}
#else
void try_set(const std::string &set, int rounds) {
    const int64_t columns = headlight_columns_float32_neon;
    if (set == "neon")
        try_steps(rounds, headlight_attend_float32_neon, headlight_add_norm_float32_neon, headlight_multiply_float32_neon, columns, 4,
                  headlight_embed_float32_neon);
    for (int i = 0; i < rounds; i++) {
        if (set == "neon") {
            try_product<float, uint16_t>(headlight_multiply_bfloat16_neon, headlight_columns_bfloat16_neon);
            try_product<float>(headlight_stored_multiply_float32_neon, 0);
        }
        if (set == "neon_bf16")
            try_product<float, uint16_t>(headlight_multiply_bfloat16_neon_bf16, headlight_columns_bfloat16_neon_bf16, 8);
        if (set == "neon_dotprod") try_int8_product<float>(INT8(float32_neon_dotprod), columns);
        if (set == "neon_i8mm") try_int8_product<float>(INT8(float32_neon_i8mm), columns, 8);
    }
}
#endif

}  // namespace

// The arguments are the number of rounds, and the instruction sets that this processor has.
int main(int count, char **arguments) {
    for (int i = 2; i < count; i++) try_set(arguments[i], std::atoi(arguments[1]));
    std::printf("%d failures\n", failures);
    return failures != 0;
}
