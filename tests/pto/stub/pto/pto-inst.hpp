// A stand-in for the PTO tile library, for the tests alone: enough of its interface to compile and run what `--to pto-cpp` writes.
//
// Instructions are recorded when they are called, per core, and executed afterwards: every pipe in order, pipes side by side, in an
// order that a seed chooses. Tiles lie in the bytes of their buffers, row by row whatever their layout; what is outside the valid
// region becomes NaN, or -1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#define AICORE
#define __global__
#define __gm__

using half = _Float16;

struct bfloat16_t {
  uint16_t bits = 0;
  bfloat16_t() = default;
  bfloat16_t(double x) {
    float f = static_cast<float>(x);
    uint32_t u;
    std::memcpy(&u, &f, 4);
    bits = std::isnan(f) ? 0x7fc0 : static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  operator double() const {
    uint32_t u = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
};

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
enum event_t { EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };
constexpr int FFTS_MODE_VAL = 2;

namespace stub {

inline void fail(const char *why) {
  std::fprintf(stderr, "%s\n", why);
  std::exit(1);
}

struct Item {
  enum Kind { Do, Set, Wait, Barrier } kind;
  int pipe;                      // in whose queue it is; PIPE_S holds up what follows
  std::tuple<int, int, int, int> flag;  // core, source, target, id; between cores: -1, the one that sets it, 0, id
  std::function<void()> action;
};

inline int core = 0;  // which is recorded
inline std::vector<Item> streams[2];

inline void put(Item::Kind kind, int pipe, std::tuple<int, int, int, int> flag = {}, std::function<void()> action = {}) {
#ifdef __CPU_SIM  // as the library's simulator: every instruction is executed where it is called
  if (action) action();
  return;
#endif
  streams[core].push_back({kind, pipe, flag, std::move(action)});
}

// Execute what both cores were given, in an order that the seed chooses: pipes have fixed chances, so that some lag behind.
inline void run(unsigned seed) {
  std::mt19937 random(seed);
  size_t issued[2] = {0, 0};
  std::deque<Item *> queues[2][PIPE_ALL];
  std::map<std::tuple<int, int, int, int>, int> flags;
  double chance[2][PIPE_ALL + 1];
  for (auto &c : chance)
    for (double &x : c) x = std::pow(0.01 + (random() % 1000) / 1000.0, 3);
  auto empty = [&](int c) { return std::all_of(queues[c], queues[c] + PIPE_ALL, [](auto &q) { return q.empty(); }); };
  for (;;) {
    std::vector<std::tuple<int, int, double>> ready;
    for (int c = 0; c < 2; ++c) {
      if (issued[c] < streams[c].size()) {
        Item &next = streams[c][issued[c]];
        bool stays = next.kind == Item::Wait && next.pipe == PIPE_S && !flags[next.flag];
        stays = stays || (next.kind == Item::Barrier && next.pipe == PIPE_ALL && !empty(c));
        if (!stays) ready.push_back({c, PIPE_ALL, chance[c][PIPE_ALL]});
      }
      for (int p = 0; p < PIPE_ALL; ++p)
        if (!queues[c][p].empty() && !(queues[c][p].front()->kind == Item::Wait && !flags[queues[c][p].front()->flag]))
          ready.push_back({c, p, chance[c][p]});
    }
    if (ready.empty()) break;
    double total = 0;
    for (auto &[c, p, x] : ready) total += x;
    double at = total * (random() % 1000000) / 1e6;
    size_t k = 0;
    while (k + 1 < ready.size() && at >= std::get<2>(ready[k])) at -= std::get<2>(ready[k++]);
    auto [c, p, x] = ready[k];
    Item *item;
    if (p == PIPE_ALL) {
      item = &streams[c][issued[c]++];
      if (item->pipe != PIPE_ALL && !(item->kind == Item::Wait && item->pipe == PIPE_S)) {
        queues[c][item->pipe].push_back(item);
        continue;
      }
    } else {
      item = queues[c][p].front();
      queues[c][p].pop_front();
    }
    if (item->kind == Item::Do) item->action();
    if (item->kind == Item::Set) ++flags[item->flag];
    if (item->kind == Item::Wait) --flags[item->flag];
  }
  for (int c = 0; c < 2; ++c)
    if (issued[c] < streams[c].size() || !empty(c)) fail("deadlock");
  for (auto &[flag, n] : flags)
    if (n) fail("a flag is set at the end");
}

inline std::vector<uint8_t> memory[16] = {};

template <typename T> constexpr bool is_floating = !std::is_integral_v<T>;

template <typename T> void poison(T &x) { std::memset(&x, 0xff, sizeof(T)); }

// The element of a wider number: rounded once, integers wrap.
template <typename T, typename X> T narrow(X x) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, float> || std::is_same_v<T, bfloat16_t>)
    return static_cast<T>(static_cast<double>(x));
  else
    return static_cast<T>(x);
}

template <typename T> auto wide(T x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<int64_t>(x);
  else
    return static_cast<double>(x);
}

}  // namespace stub

inline void set_flag(pipe_t p, pipe_t q, event_t id) { stub::put(stub::Item::Set, p, {stub::core, p, q, id}); }
inline void wait_flag(pipe_t p, pipe_t q, event_t id) { stub::put(stub::Item::Wait, q, {stub::core, p, q, id}); }
inline void pipe_barrier(pipe_t p) { stub::put(stub::Item::Barrier, p); }
inline void set_ffts_base_addr(uint64_t) {}
inline int getFFTSMsg(int, int id) { return id; }
inline void ffts_cross_core_sync(pipe_t p, int id) { stub::put(stub::Item::Set, p, {-1, stub::core, 0, id}); }
inline void wait_flag_dev(int id) { stub::put(stub::Item::Wait, PIPE_S, {-1, 1 - stub::core, 0, id}); }
inline void set_intra_block(pipe_t p, int id) { stub::put(stub::Item::Set, p, {-1, stub::core, 0, id}); }
inline void wait_intra_block(pipe_t q, int id) { stub::put(stub::Item::Wait, q, {-1, 1 - stub::core, 0, id}); }

inline thread_local uint32_t block = 0;
inline int64_t get_block_idx() { return block; }
inline int64_t get_subblockid() { return 0; }

namespace pto {

namespace cpu_sim {
inline void set_execution_context(uint32_t block_idx, uint32_t) { block = block_idx; }
}  // namespace cpu_sim
enum class SyncCoreType { AIVOnly, AICOnly, Mix };

enum class TileType { Vec, Mat, Left, Right, Acc, Bias, Scaling, ScaleLeft, ScaleRight };
enum class BLayout { RowMajor, ColMajor };
enum class SLayout { NoneBox, RowMajor, ColMajor };
enum class PadValue { Null, Zero, Max, Min };
enum class Layout { ND, DN, NZ };
enum class CmpMode { EQ, NE, LT, LE, GT, GE };
enum class RoundMode { CAST_NONE, CAST_RINT, CAST_ROUND, CAST_FLOOR, CAST_CEIL, CAST_TRUNC, CAST_ODD };
enum class AtomicType { AtomicNone, AtomicAdd };
enum class ReluPreMode { NoRelu, NormalRelu };

template <int... N> struct Shape {
  static constexpr int fixed[5] = {N...};
  int64_t n[5];
  Shape(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) : n{a, b, c, d, e} {}
};
template <int... N> struct Stride {
  int64_t n[5];
  Stride(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) : n{a, b, c, d, e} {}
};

template <typename T, typename S, typename D, Layout L> struct GlobalTensor {
  using DType = T;
  using Extents = S;
  static constexpr bool isRowMajor = L == Layout::ND;
  T *data;
  S shape;
  D stride;
  GlobalTensor(T *p, S s, D d) : data(p), shape(s), stride(d) {}
  // The chip moves neighbors in memory: it reads no stride of the last dimension, or in memory of columns of the one before.
  int64_t step(int d) const {
#ifndef __CPU_SIM
    if (d == (L == Layout::DN ? 3 : 4)) return 1;
#endif
    return stride.n[d];
  }
  int64_t rows() const { return shape.n[0] * shape.n[1] * shape.n[2] * shape.n[3]; }
  T &at(int64_t row, int64_t column) const {
    int64_t offset = column * step(4);
    for (int d = 3; d >= 0; --d) {
      offset += row % shape.n[d] * step(d);
      row /= shape.n[d];
    }
    return data[offset];
  }
};

template <TileType L, typename T, int R, int C, BLayout B, int VR, int VC, SLayout S, int F, PadValue P> struct Tile {
  using DType = T;
  static constexpr TileType Loc = L;
  static constexpr int Rows = R, Cols = C;
  static constexpr bool isRowMajor = B == BLayout::RowMajor, isBoxed = S != SLayout::NoneBox;
  static constexpr PadValue Pad = P;
  int64_t rows, columns, address = -1;
  Tile(int64_t r, int64_t c) : rows(r), columns(c) {
    if (r < 1 || c < 1 || r > R || c > C) stub::fail("a valid region leaves its tile");
  }
  int64_t GetValidRow() const { return rows; }
  int64_t GetValidCol() const { return columns; }
  T &at(int64_t r, int64_t c) const {
    auto &bytes = stub::memory[static_cast<int>(L)];
    int64_t place = address + (r * C + c) * static_cast<int64_t>(sizeof(T));
    if (address < 0 || place < 0) stub::fail("a tile has no address");
    if (bytes.size() < static_cast<size_t>(1) << 20) bytes.resize(static_cast<size_t>(1) << 20, 0xff);
    return *reinterpret_cast<T *>(bytes.data() + place);
  }
  // Set the valid region, the rest becomes undefined. All is computed before anything is written: operands may lie here, too.
  template <typename Fn> void fill(Fn fn) const {
    std::vector<T> made;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) made.push_back(fn(r, c));
    for (int64_t r = 0; r < R; ++r)
      for (int64_t c = 0; c < C; ++c) {
        if (r < rows && c < columns)
          at(r, c) = made[r * columns + c];
        else
          stub::poison(at(r, c));
      }
  }
};

template <typename X> constexpr bool is_tile = false;
template <TileType L, typename T, int R, int C, BLayout B, int VR, int VC, SLayout S, int F, PadValue P>
constexpr bool is_tile<Tile<L, T, R, C, B, VR, VC, S, F, P>> = true;

template <typename T> void TASSIGN(T &tile, int64_t address) { tile.address = address; }

template <typename D> void record(pipe_t pipe, D action) { stub::put(stub::Item::Do, pipe, {}, action); }

enum Direction { DIR_C2V = 1, DIR_V2C = 2 };
enum class TileSplitAxis { TILE_NO_SPLIT, TILE_UP_DOWN, TILE_LEFT_RIGHT };

// A pipe between the cube core and one vector core. Its slots are in memory, or those of the consumer, where a popped tile then is.
template <int Id, Direction Way, int Size, int Slots, int Local, bool Whole> struct TPipe {
  static constexpr pipe_t Waits = Way == DIR_C2V ? PIPE_V : PIPE_MTE1;
  static constexpr int Cube = 0, Bytes = Size, Number = Slots, Kept = Local;
  struct {
    int64_t C2V_CONSUMER_BUF, V2C_CONSUMER_BUF;
  } fifo;
  uint8_t *slots;
  int64_t passed = 0;
  TPipe(uint8_t *memory, int64_t c2v, int64_t v2c) : fifo{c2v, v2c}, slots(memory) {
    static_assert(Whole, "one vector core");
  }
  int64_t base() const { return Way == DIR_C2V ? fifo.C2V_CONSUMER_BUF : fifo.V2C_CONSUMER_BUF; }
  // Flags to the other core: 1, a slot is full; 2, it is free.
  static void set(pipe_t pipe, int what) { stub::put(stub::Item::Set, pipe, {-1, stub::core, what, Id}); }
  static void wait(pipe_t pipe, int what) { stub::put(stub::Item::Wait, pipe, {-1, 1 - stub::core, what, Id}); }
  ~TPipe() {
    if ((stub::core == Cube) == (Way == DIR_C2V))
      for (int64_t k = std::min<int64_t>(passed, Slots); k > 0; --k) wait(PIPE_S, 2);
  }
};

template <typename P, typename T, TileSplitAxis Axis> void TPUSH(P &pipe, T &t) {
  if (t.rows != T::Rows || t.columns != T::Cols) stub::fail("TPUSH: a tile is valid in full");
  if (T::Loc == TileType::Vec && T::isBoxed != !pipe.slots) stub::fail("TPUSH: the layout of a tile for the cube core");
  const pipe_t by = T::Loc == TileType::Acc ? PIPE_FIX : PIPE_MTE3;
  using E = typename T::DType;
  const int64_t k = pipe.passed++, slot = k % P::Number * P::Bytes;
  if (k >= P::Number) P::wait(pipe.slots ? PIPE_S : by, 2);
  uint8_t *memory = pipe.slots;
  const int64_t base = pipe.base();
  record(by, [=] {
    Tile<T::Loc == TileType::Acc ? TileType::Vec : TileType::Mat, E, T::Rows, T::Cols, BLayout::RowMajor, -1, -1,
         SLayout::NoneBox, 512, PadValue::Null> there(T::Rows, T::Cols);
    there.address = base + slot;
    for (int64_t r = 0; r < T::Rows; ++r)
      for (int64_t c = 0; c < T::Cols; ++c)
        (memory ? reinterpret_cast<E *>(memory + slot)[r * T::Cols + c] : there.at(r, c)) = t.at(r, c);
  });
  P::set(by, 1);
}

template <typename P, typename T, TileSplitAxis Axis> void TPOP(P &pipe, T &t) {
  if (t.rows != T::Rows || t.columns != T::Cols) stub::fail("TPOP: a tile is valid in full");
  using E = typename T::DType;
  const int64_t k = pipe.passed++, slot = k % P::Number * P::Bytes;
  P::wait(pipe.slots ? PIPE_S : P::Waits, 1);
  t.address = pipe.base() + (pipe.slots ? k % P::Kept * P::Bytes : slot);
  if (!pipe.slots) return;
  const E *from = reinterpret_cast<E *>(pipe.slots + slot);
  const T to = t;
  record(PIPE_MTE2, [=] { to.fill([&](int64_t r, int64_t c) { return from[r * T::Cols + c]; }); });
  P::set(PIPE_MTE2, 2);
}

template <typename P, TileSplitAxis Axis> void TFREE(P &pipe) {
  if (!pipe.slots) P::set(P::Waits, 2);
}

template <typename D, typename G> void TLOAD(D d, G g) {
  if constexpr (D::Loc == TileType::Mat && D::isBoxed)
    static_assert(G::Extents::fixed[0] == 1 && G::Extents::fixed[1] == 1 && G::Extents::fixed[2] == 1, "a matrix has two extents");
  if constexpr (D::Loc == TileType::Vec && !D::isBoxed)
    static_assert(D::isRowMajor == G::isRowMajor, "memory of rows is loaded to rows, memory of columns to columns");
  if (g.rows() != d.rows || g.shape.n[4] != d.columns) stub::fail("TLOAD: the window is not the valid region");
  if (!D::isRowMajor && g.shape.n[3] != d.rows) stub::fail("TLOAD: the rows of a matrix or a column are one dimension");
  record(PIPE_MTE2, [=] { d.fill([&](int64_t r, int64_t c) { return g.at(r, c); }); });
}

template <typename S, typename G, AtomicType A = AtomicType::AtomicNone, ReluPreMode Relu = ReluPreMode::NoRelu>
void TSTORE(G g, S s) {
  if constexpr (S::Loc == TileType::Vec && !S::isBoxed)
    static_assert(S::isRowMajor == G::isRowMajor, "rows are stored to memory of rows, columns to memory of columns");
  using E = typename G::DType;
  static_assert(A == AtomicType::AtomicNone || !std::is_integral_v<E> || (std::is_signed_v<E> && sizeof(E) < 8), "no such sums");
  static_assert(Relu == ReluPreMode::NoRelu || S::Loc == TileType::Acc, "only Acc has a positive part");
  if (g.rows() != s.rows || g.shape.n[4] != s.columns) stub::fail("TSTORE: the window is not the valid region");
  record(S::Loc == TileType::Acc ? PIPE_FIX : PIPE_MTE3, [=] {
    using T = typename G::DType;
    for (int64_t r = 0; r < g.rows(); ++r)
      for (int64_t c = 0; c < g.shape.n[4]; ++c) {
        auto x = stub::wide(s.at(r, c));
        if (Relu == ReluPreMode::NormalRelu && x < 0) x = 0;
        auto old = stub::wide(g.at(r, c));
        if (A == AtomicType::AtomicAdd) x = x + old;
        g.at(r, c) = stub::narrow<T>(x);
      }
  });
}

template <typename D, typename S> constexpr pipe_t between() {
  if (S::Loc == TileType::Acc) return PIPE_FIX;
  if (S::Loc == TileType::Vec) return D::Loc == TileType::Vec ? PIPE_V : PIPE_FIX;
  return D::Loc == TileType::Scaling ? PIPE_FIX : PIPE_MTE1;
}

template <typename D, typename S> constexpr bool whole_row() {
  return D::Loc != TileType::Left || S::Rows != 1 ||
         (S::Cols * sizeof(typename S::DType) % 512 == 0 && D::Cols * sizeof(typename S::DType) % 512 == 0);
}

template <typename D, typename S> void TMOV(D d, S s) {
  static_assert(whole_row<D, S>(), "a row that goes to Left has a multiple of 512 bytes");
  using T = typename D::DType;
  record(between<D, S>(), [=] { d.fill([&](int64_t r, int64_t c) { return stub::narrow<T>(stub::wide(s.at(r, c))); }); });
}

template <typename D, typename S> void TEXTRACT(D d, S s, int64_t row, int64_t column) {
  static_assert(whole_row<D, S>(), "a row that goes to Left has a multiple of 512 bytes");
  record(PIPE_MTE1, [=] { d.fill([&](int64_t r, int64_t c) { return s.at(r + row, c + column); }); });
}

template <typename D, typename S> void TRESHAPE(D d, S s) {
  if (d.address != s.address) stub::fail("TRESHAPE moves nothing");
}

template <typename D, typename A, typename B> void product(D d, A a, B b, std::function<double(int64_t, int64_t)> more, bool first) {
  if (a.columns != b.rows) stub::fail("TMATMUL: K differs");
  using T = typename D::DType;
  record(PIPE_M, [=] {
    d.fill([&](int64_t r, int64_t c) {
      if constexpr (std::is_integral_v<T>) {
        int64_t sum = 0;
        for (int64_t k = 0; k < a.columns; ++k) sum += static_cast<int64_t>(a.at(r, k)) * b.at(k, c);
        return static_cast<T>(sum + static_cast<int64_t>(more(r, c)));
      } else {
        float sum = 0;
        for (int64_t k = 0; k < a.columns; ++k)
          sum = static_cast<float>(static_cast<double>(sum) + static_cast<double>(a.at(r, k)) * static_cast<double>(b.at(k, c)));
        return first ? sum : static_cast<T>(static_cast<float>(more(r, c)) + sum);
      }
    });
  });
}

template <typename D, typename A, typename B> void TMATMUL(D d, A a, B b) {
  product(d, a, b, [](int64_t, int64_t) { return 0.0; }, true);
}
template <typename D, typename X, typename A, typename B> void TMATMUL_ACC(D d, X x, A a, B b) {
  product(d, a, b, [=](int64_t r, int64_t c) { return static_cast<double>(x.at(r, c)); }, false);
}
template <typename D, typename A, typename B, typename X> void TMATMUL_BIAS(D d, A a, B b, X x) {
  product(d, a, b, [=](int64_t, int64_t c) { return static_cast<double>(x.at(0, c)); }, false);
}

// A matrix of one row.
template <typename D, typename A, typename B> void TGEMV(D d, A a, B b) { TMATMUL(d, a, b); }
template <typename D, typename X, typename A, typename B> void TGEMV_ACC(D d, X x, A a, B b) { TMATMUL_ACC(d, x, a, b); }
template <typename D, typename A, typename B, typename X> void TGEMV_BIAS(D d, A a, B b, X x) { TMATMUL_BIAS(d, a, b, x); }

// Element by element: tiles give their element, scalars themselves.
template <typename X> auto element(const X &x, int64_t r, int64_t c) {
  if constexpr (is_tile<X>)
    return stub::wide(x.at(r, c));
  else
    return stub::wide(x);
}

// The chip's instructions on elements take rows, and a scalar after the tile.
#define STUB_UNARY(NAME, EXPRESSION)                                                             \
  template <typename D, typename A> void NAME(D d, A a) {                                        \
    static_assert(D::isRowMajor, #NAME " is on rows");                                           \
    using T = typename D::DType;                                                                 \
    record(PIPE_V, [=] {                                                                         \
      d.fill([&](int64_t r, int64_t c) {                                                         \
        auto x = element(a, r, c);                                                               \
        return stub::narrow<T>(EXPRESSION);                                                      \
      });                                                                                        \
    });                                                                                          \
  }
#define STUB_FILL(EXPRESSION)                                                                    \
  d.fill([&](int64_t r, int64_t c) {                                                             \
    auto x = element(a, r, c);                                                                   \
    auto y = element(b, r, c);                                                                   \
    return stub::narrow<T>(EXPRESSION);                                                          \
  });
#define STUB_BINARY(NAME, EXPRESSION)                                                            \
  template <typename D, typename A, typename B> void NAME(D d, A a, B b) {                       \
    static_assert(D::isRowMajor, #NAME " is on rows");                                           \
    static_assert(is_tile<A> || std::string_view(#NAME) == "TDIVS", #NAME " has the tile first"); \
    using T = typename D::DType;                                                                 \
    record(PIPE_V, [=] {                                                                         \
      STUB_FILL(EXPRESSION)                                                                      \
    });                                                                                          \
  }
#define STUB_EXPANDED(NAME, EXPRESSION)                                                          \
  template <typename D, typename A, typename B> void TROWEXPAND##NAME(D d, A a, B b) {           \
    using T = typename D::DType;                                                                 \
    record(PIPE_V, [=] {                                                                         \
      d.fill([&](int64_t r, int64_t c) {                                                         \
        auto x = stub::wide(a.at(r, c));                                                         \
        auto y = stub::wide(b.at(r, 0));                                                         \
        return stub::narrow<T>(EXPRESSION);                                                      \
      });                                                                                        \
    });                                                                                          \
  }                                                                                              \
  template <typename D, typename A, typename B> void TCOLEXPAND##NAME(D d, A a, B b) {           \
    using T = typename D::DType;                                                                 \
    record(PIPE_V, [=] {                                                                         \
      d.fill([&](int64_t r, int64_t c) {                                                         \
        auto x = stub::wide(a.at(r, c));                                                         \
        auto y = stub::wide(b.at(0, c));                                                         \
        return stub::narrow<T>(EXPRESSION);                                                      \
      });                                                                                        \
    });                                                                                          \
  }

// What an instruction works in is lost: bytes of its own, or of tiles that nothing reads any more.
template <typename S> void spoil(const S &s) {
  s.fill([&](int64_t, int64_t) { typename S::DType x; stub::poison(x); return x; });
}
#define STUB_SPOILING(NAME, EXPRESSION)                                                          \
  template <typename D, typename A, typename B, typename S> void NAME(D d, A a, B b, S s) {      \
    static_assert(D::isRowMajor && is_tile<A>, #NAME " is on rows, the tile first");             \
    using T = typename D::DType;                                                                 \
    record(PIPE_V, [=] {                                                                         \
      STUB_FILL(EXPRESSION)                                                                      \
      spoil(s);                                                                                  \
    });                                                                                          \
  }

// The remainder with the sign of the divisor: of floats exact, as the machine has it.
template <typename X> X floored(X x, X y) {
  if constexpr (std::is_same_v<X, double>) {
    auto rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest == 0 ? std::copysign(0.0, y) : rest;
  } else {
    if (y == 0) stub::fail("TREM: divided by 0");
    auto rest = x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
}

STUB_UNARY(TEXP, std::exp(x))
STUB_UNARY(TLOG, std::log(x))
STUB_UNARY(TSQRT, std::sqrt(x))
STUB_UNARY(TRSQRT, 1 / std::sqrt(x))
STUB_UNARY(TRECIP, 1 / x)
STUB_UNARY(TABS, x <= 0 ? 0 - x : x)
STUB_UNARY(TNEG, -x)
STUB_UNARY(TRELU, x < 0 ? 0 : x)
STUB_UNARY(TEXPANDS, x)
STUB_BINARY(TADD, x + y)
STUB_BINARY(TSUB, x - y)
STUB_BINARY(TMUL, x *y)
STUB_BINARY(TDIV, x / y)
STUB_BINARY(TMAX, x != x || x > y ? x : y)
STUB_BINARY(TMIN, x != x || x < y ? x : y)
STUB_BINARY(TADDS, x + y)
STUB_BINARY(TSUBS, x - y)
STUB_BINARY(TMULS, x *y)
STUB_BINARY(TDIVS, x / y)
STUB_BINARY(TMAXS, x != x || x > y ? x : y)
STUB_BINARY(TMINS, x != x || x < y ? x : y)
STUB_UNARY(TNOT, ~x)
STUB_BINARY(TAND, x &y)
STUB_BINARY(TOR, x | y)
STUB_SPOILING(TXOR, x ^ y)
STUB_BINARY(TSHL, x << y)
STUB_BINARY(TSHR, x >> y)
STUB_BINARY(TANDS, x &y)
STUB_BINARY(TORS, x | y)
STUB_SPOILING(TXORS, x ^ y)
STUB_BINARY(TSHLS, x << y)
STUB_BINARY(TSHRS, x >> y)
STUB_SPOILING(TREM, floored(x, y))
STUB_SPOILING(TREMS, floored(x, y))
STUB_SPOILING(TPOW, std::pow(x, y))
STUB_SPOILING(TPOWS, std::pow(x, y))
STUB_BINARY(TFMOD, std::fmod(x, y))
STUB_BINARY(TFMODS, std::fmod(x, y))
STUB_EXPANDED(ADD, x + y)
STUB_EXPANDED(SUB, x - y)
STUB_EXPANDED(MUL, x *y)
STUB_EXPANDED(DIV, x / y)
STUB_EXPANDED(MAX, x != x || x > y ? x : y)
STUB_EXPANDED(MIN, x != x || x < y ? x : y)
STUB_EXPANDED(EXPDIF, std::exp(x - y))

template <typename D, typename A> void TAXPY(D d, A a, typename A::DType scalar) {
  using T = typename D::DType;
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) {
      auto scaled = stub::narrow<T>(stub::wide(a.at(r, c)) * stub::wide(scalar));
      return stub::narrow<T>(stub::wide(d.at(r, c)) + stub::wide(scaled));
    });
  });
}

// The sum where both have an element, else the one that is there.
template <typename D, typename A, typename B> void TPARTADD(D d, A a, B b) {
  using T = typename D::DType;
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) {
      bool first = r < a.rows && c < a.columns, second = r < b.rows && c < b.columns;
      if (first && second) return stub::narrow<T>(stub::wide(a.at(r, c)) + stub::wide(b.at(r, c)));
      return first ? a.at(r, c) : b.at(r, c);
    });
  });
}

template <typename D, typename A> void TROWEXPAND(D d, A a) {
  record(PIPE_V, [=] { d.fill([&](int64_t r, int64_t) { return a.at(r, 0); }); });
}
template <typename D, typename A> void TCOLEXPAND(D d, A a) {
  record(PIPE_V, [=] { d.fill([&](int64_t, int64_t c) { return a.at(0, c); }); });
}

// Along rows or columns, in order, in float; the scratch is written (which of a column is the result itself).
template <typename D, typename A, typename S, typename Fn> void reduce(D d, A a, S scratch, bool rows, Fn fn) {
  using T = typename D::DType;
  record(PIPE_V, [=] {
    scratch.fill([&](int64_t, int64_t) { typename S::DType x; stub::poison(x); return x; });
    d.fill([&](int64_t r, int64_t c) {
      using W = std::conditional_t<std::is_integral_v<T>, T, float>;
      W x = static_cast<W>(rows ? a.at(r, 0) : a.at(0, c));
      for (int64_t k = 1; k < (rows ? a.columns : a.rows); ++k) x = fn(x, static_cast<W>(rows ? a.at(r, k) : a.at(k, c)));
      return stub::narrow<T>(x);
    });
  });
}
template <typename D, typename A, typename S> void TROWSUM(D d, A a, S s) {
  reduce(d, a, s, true, [](auto x, auto y) { return static_cast<decltype(x)>(x + y); });
}
template <typename D, typename A, typename S> void TROWMAX(D d, A a, S s) {
  reduce(d, a, s, true, [](auto x, auto y) { return x != x || x > y ? x : y; });
}
template <typename D, typename A, typename S> void TROWMIN(D d, A a, S s) {
  reduce(d, a, s, true, [](auto x, auto y) { return x != x || x < y ? x : y; });
}
template <typename D, typename A, typename S> void TROWARGMAX(D d, A a, S s) {
  using T = typename D::DType;
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t) {
      int64_t best = 0;
      for (int64_t c = 1; c < a.columns; ++c)
        if (a.at(r, c) > a.at(r, best)) best = c;
      return static_cast<T>(best);
    });
    s.fill([&](int64_t, int64_t) { typename S::DType x; stub::poison(x); return x; });
  });
}
template <typename D, typename A, typename S> void TCOLSUM(D d, A a, S s, bool) {
  reduce(d, a, s, false, [](auto x, auto y) { return static_cast<decltype(x)>(x + y); });
}
// Of integers the lowest bits, as what has no sign gives them.
inline auto product_of = [](auto x, auto y) {
  if constexpr (std::is_integral_v<decltype(x)>)
    return static_cast<decltype(x)>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
  else
    return static_cast<decltype(x)>(x * y);
};
template <typename D, typename A> void TCOLPROD(D d, A a) { reduce(d, a, d, false, product_of); }
template <typename D, typename A, typename S> void TROWPROD(D d, A a, S s) { reduce(d, a, s, true, product_of); }
template <typename D, typename A> void TCOLMAX(D d, A a) {
  reduce(d, a, d, false, [](auto x, auto y) { return x != x || x > y ? x : y; });
}
template <typename D, typename A> void TCOLMIN(D d, A a) {
  reduce(d, a, d, false, [](auto x, auto y) { return x != x || x < y ? x : y; });
}
template <typename D, typename A, typename S> void TTRANS(D d, A a, S s) {
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) { return a.at(c, r); });
    s.fill([&](int64_t, int64_t) { typename S::DType x; stub::poison(x); return x; });
  });
}

inline bool compared(double x, double y, CmpMode mode) {
  switch (mode) {
    case CmpMode::EQ: return x == y;
    case CmpMode::NE: return x != y;
    case CmpMode::LT: return x < y;
    case CmpMode::LE: return x <= y;
    case CmpMode::GT: return x > y;
    default: return x >= y;
  }
}

// A mask is packed: eight columns to a byte, the lowest bit first, every row for itself.
template <typename D, typename A, typename B> void packed(D d, A a, B b, CmpMode mode) {
  static_assert(std::is_same_v<typename D::DType, uint8_t>, "a mask is bytes");
  if (d.columns != (A::Cols + 7) / 8) stub::fail("TCMP: the mask is not as wide as the bits of a row");
  record(PIPE_V, [=] {
    for (int64_t r = 0; r < d.rows; ++r) {
      std::vector<uint8_t> row((a.columns + 7) / 8);
      for (int64_t c = 0; c < a.columns; ++c)
        row[c / 8] |= static_cast<uint8_t>(compared(element(a, r, c), element(b, r, c), mode)) << c % 8;
      for (size_t k = 0; k < row.size(); ++k) d.at(r, static_cast<int64_t>(k)) = row[k];
    }
  });
}
template <typename D, typename A, typename B> void TCMP(D d, A a, B b, CmpMode mode) { packed(d, a, b, mode); }
template <typename D, typename A, typename B> void TCMPS(D d, A a, B b, CmpMode mode) { packed(d, a, b, mode); }
template <typename D, typename M, typename A, typename B, typename X> void TSEL(D d, M m, A a, B b, X) {
  static_assert(D::isRowMajor, "TSEL is on rows");
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) { return m.at(r, c / 8) >> c % 8 & 1 ? a.at(r, c) : b.at(r, c); });
  });
}

enum class SaturationMode { ON, OFF };

template <typename D, typename A> void TCVT(D d, A a, RoundMode mode, SaturationMode saturates = SaturationMode::OFF) {
  static_assert(D::isRowMajor, "TCVT is on rows");
  using T = typename D::DType;
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) {
      auto x = stub::wide(a.at(r, c));
      if constexpr (std::is_integral_v<T> && std::is_same_v<decltype(x), double>)
        x = mode == RoundMode::CAST_TRUNC   ? std::trunc(x)
            : mode == RoundMode::CAST_FLOOR ? std::floor(x)
            : mode == RoundMode::CAST_CEIL  ? std::ceil(x)
            : mode == RoundMode::CAST_ROUND ? std::round(x)
                                            : std::nearbyint(x);
      if constexpr (std::is_integral_v<T> && std::is_same_v<decltype(x), double>) {
        double low = double(std::numeric_limits<T>::min()), high = double(std::numeric_limits<T>::max());
        if (saturates == SaturationMode::ON) x = x != x ? 0 : x < low ? low : x > high ? high : x;
      }
      return stub::narrow<T>(x);
    });
  });
}

enum class MaskPattern { P0001 = 1, P0010 = 2, P0100 = 4, P0101 = 5, P1000 = 8, P1010 = 10, P1111 = 15 };

// The columns whose bit is set, the rightmost bit for the lowest of four.
template <typename D, typename S, MaskPattern P> void TGATHER(D d, S s) {
  static_assert(std::is_same_v<typename D::DType, typename S::DType> || sizeof(typename D::DType) == sizeof(typename S::DType));
  record(PIPE_V, [=] {
    std::vector<int64_t> columns;
    for (int64_t c = 0; c < s.columns; ++c)
      if (static_cast<int>(P) >> c % 4 & 1) columns.push_back(c);
    if (static_cast<int64_t>(columns.size()) < d.columns) stub::fail("TGATHER: too few columns");
    d.fill([&](int64_t r, int64_t c) {
      auto x = s.at(r, columns[c]);
      typename D::DType y;
      std::memcpy(&y, &x, sizeof(y));
      return y;
    });
  });
}

// By flat places in the whole source.
template <typename D, typename S, typename I, typename X> void TGATHER(D d, S s, I i, X x) {
  static_assert(sizeof(typename I::DType) == 4 && std::is_same_v<typename I::DType, typename X::DType>, "TGATHER: indices");
  if (i.rows != x.rows || i.columns != x.columns) stub::fail("TGATHER: scratch of another size");
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) {
      int64_t place = i.at(r, c);
      if (place < 0 || place >= S::Rows * S::Cols) stub::fail("TGATHER: a place is outside");
      return s.at(place / S::Cols, place % S::Cols);
    });
  });
}

// Offsets are in bytes from where the source begins, one for each 32 bytes of the result.
template <typename D, typename S, typename O> void TGATHERB(D d, S s, O o) {
  using T = typename D::DType;
  static_assert(sizeof(typename O::DType) == 4);
  constexpr int64_t per = 32 / sizeof(T);
  record(PIPE_V, [=] {
    d.fill([&](int64_t r, int64_t c) {
      auto offset = static_cast<uint32_t>(o.at(r, c / per));
      if (offset % 32) stub::fail("TGATHERB: an offset is not aligned");
      int64_t place = offset / sizeof(T) + c % per;
      return s.at(place / S::Cols, place % S::Cols);
    });
  });
}

template <typename D, typename G> void TPREFETCH(D d, G g) {
  if (g.rows() != d.rows || g.shape.n[4] != d.columns) stub::fail("TPREFETCH: the window is not the valid region");
  record(PIPE_MTE2, [=] { d.fill([&](int64_t r, int64_t c) { return g.at(r, c); }); });
}

template <typename S> void TPRINT(S s) {
  record(PIPE_V, [=] {
    std::fprintf(stderr, "TPRINT %dx%d\n", S::Rows, S::Cols);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.columns; ++c)
        if constexpr (stub::is_floating<typename S::DType>)
          std::fprintf(stderr, "%8.4f", static_cast<double>(s.at(r, c)));
        else
          std::fprintf(stderr, "%8lld", static_cast<long long>(s.at(r, c)));
      std::fprintf(stderr, "\n");
    }
  });
}

// The better of two with its index, where one is valid that one; of equal ones the second.
template <typename D, typename A, typename B, typename DI, typename AI, typename BI>
void partial(D d, A a, B b, DI di, AI ai, BI bi, bool larger) {
  if (a.rows != ai.rows || a.columns != ai.columns || b.rows != bi.rows || b.columns != bi.columns)
    stub::fail("TPARTARG: an index has another valid region than its values");
  record(PIPE_V, [=] {
    auto first = [&](int64_t r, int64_t c) {
      bool in_a = r < a.rows && c < a.columns, in_b = r < b.rows && c < b.columns;
      return in_a && (!in_b || (larger ? a.at(r, c) > b.at(r, c) : a.at(r, c) < b.at(r, c)));
    };
    std::vector<bool> chosen;
    for (int64_t r = 0; r < d.rows; ++r)
      for (int64_t c = 0; c < d.columns; ++c) chosen.push_back(first(r, c));
    auto at = [&](int64_t r, int64_t c) { return chosen[r * d.columns + c]; };
    d.fill([&](int64_t r, int64_t c) { return at(r, c) ? a.at(r, c) : b.at(r, c); });
    di.fill([&](int64_t r, int64_t c) { return at(r, c) ? ai.at(r, c) : bi.at(r, c); });
  });
}
template <typename D, typename A, typename B, typename DI, typename AI, typename BI>
void TPARTARGMAX(D d, A a, B b, DI di, AI ai, BI bi) { partial(d, a, b, di, ai, bi, true); }
template <typename D, typename A, typename B, typename DI, typename AI, typename BI>
void TPARTARGMIN(D d, A a, B b, DI di, AI ai, BI bi) { partial(d, a, b, di, ai, bi, false); }

// Pairs of eight bytes: a value, zeros up to four bytes, and a number of 32 bits.
template <typename X> struct Pair {
  X value;
  uint32_t place;
};
template <typename S> auto pair_at(const S &s, int64_t r, int64_t k) {
  constexpr int64_t per = 8 / sizeof(typename S::DType);
  Pair<typename S::DType> made;
  made.value = s.at(r, k * per);
  std::memcpy(&made.place, &s.at(r, k * per + per / 2), 4);
  return made;
}
template <typename D, typename X> void put_pair(const D &d, int64_t r, int64_t k, X x) {
  constexpr int64_t per = 8 / sizeof(typename D::DType);
  std::memset(&d.at(r, k * per), 0, 8);
  d.at(r, k * per) = x.value;
  std::memcpy(&d.at(r, k * per + per / 2), &x.place, 4);
}

// Every 32 elements of a row, largest first. The numbers are those of `idx`, of which one row is for all.
template <typename D, typename S, typename I> void TSORT32(D d, S s, I idx) {
  static_assert(std::is_same_v<typename I::DType, uint32_t> && std::is_same_v<typename D::DType, typename S::DType>);
  if (s.columns % 32) stub::fail("TSORT32: columns are not a multiple of 32");
  record(PIPE_V, [=] {
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t b = 0; b < s.columns; b += 32) {
        std::vector<Pair<typename S::DType>> run;
        for (int64_t c = b; c < b + 32; ++c) run.push_back({s.at(r, c), idx.at(I::Rows == 1 ? 0 : r, c)});
        std::stable_sort(run.begin(), run.end(), [](auto &x, auto &y) { return x.value > y.value; });
        for (int64_t k = 0; k < 32; ++k) put_pair(d, r, b + k, run[k]);
      }
  });
}

struct MrgSortExecutedNumList {
  uint16_t mrgSortList0, mrgSortList1, mrgSortList2, mrgSortList3;
};

// Sorted lists merged from their heads; of equal heads the earlier list's. A list that is not sorted shows.
template <typename X> std::vector<X> merged(std::vector<std::vector<X>> lists, bool exhausted) {
  std::vector<size_t> at(lists.size());
  std::vector<X> made;
  for (;;) {
    int best = -1;
    for (size_t k = 0; k < lists.size(); ++k)
      if (at[k] < lists[k].size() && (best < 0 || lists[k][at[k]].value > lists[best][at[best]].value)) best = static_cast<int>(k);
    if (best < 0) return made;
    made.push_back(lists[best][at[best]++]);
    if (exhausted && at[best] == lists[best].size()) return made;
  }
}
template <typename D, typename S> void TMRGSORT(D d, S s, uint32_t length) {
  constexpr int64_t per = 8 / sizeof(typename S::DType);
  int64_t pairs = length / per, all = s.columns / per;
  if (length % 64 || all % (4 * pairs)) stub::fail("TMRGSORT: a length of blocks");
  record(PIPE_V, [=] {
    for (int64_t b = 0; b < all; b += 4 * pairs) {
      std::vector<std::vector<Pair<typename S::DType>>> lists(4);
      for (int64_t k = 0; k < 4 * pairs; ++k) lists[k / pairs].push_back(pair_at(s, 0, b + k));
      auto made = merged(lists, false);
      for (size_t k = 0; k < made.size(); ++k) put_pair(d, 0, b + static_cast<int64_t>(k), made[k]);
    }
  });
}
template <bool Exhausted, typename D, typename... S> void merge(D d, S... s) {
  record(PIPE_V, [=] {
    std::vector<std::vector<Pair<typename D::DType>>> lists;
    auto add = [&](auto &x) {
      lists.emplace_back();
      for (int64_t k = 0; k < x.columns * static_cast<int64_t>(sizeof(typename D::DType)) / 8; ++k) lists.back().push_back(pair_at(x, 0, k));
    };
    (add(s), ...);
    auto made = merged(lists, Exhausted);
    for (size_t k = 0; k < made.size(); ++k) put_pair(d, 0, static_cast<int64_t>(k), made[k]);
  });
}
template <typename D, typename T, typename A, typename B, bool Exhausted>
void TMRGSORT(D d, MrgSortExecutedNumList &, T, A a, B b) { merge<Exhausted>(d, a, b); }
template <typename D, typename T, typename A, typename B, typename C, bool Exhausted>
void TMRGSORT(D d, MrgSortExecutedNumList &, T, A a, B b, C c) { merge<Exhausted>(d, a, b, c); }
template <typename D, typename T, typename A, typename B, typename C, typename E, bool Exhausted>
void TMRGSORT(D d, MrgSortExecutedNumList &, T, A a, B b, C c, E e) { merge<Exhausted>(d, a, b, c, e); }

// A factor: a number, or the bits of one in the low half of 64.
template <typename T> double factor(T x) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    float f;
    std::memcpy(&f, &x, 4);
    return f;
  } else {
    return static_cast<double>(x);
  }
}

// Into a Mat tile, each column times its factor, rounded to nearest even and saturated.
template <typename D, typename S, typename F> void TINSERT_FP(D d, S s, F f, int64_t row, int64_t column) {
  using T = typename D::DType;
  record(PIPE_FIX, [=] {
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t c = 0; c < s.columns; ++c) {
        double x = static_cast<double>(s.at(r, c)) * factor(f.at(0, c));
        if constexpr (std::is_integral_v<T>)
          x = std::clamp(std::nearbyint(x), static_cast<double>(std::numeric_limits<T>::min()), static_cast<double>(std::numeric_limits<T>::max()));
        d.at(r + row, c + column) = stub::narrow<T>(x);
      }
  });
}

// By flat indices; what is not written stays.
template <typename D, typename A, typename I> void TSCATTER(D d, A a, I at) {
  static_assert(sizeof(typename D::DType) == sizeof(typename I::DType), "TSCATTER: indices are as wide as elements");
  record(PIPE_V, [=] {
    for (int64_t r = 0; r < at.rows; ++r)
      for (int64_t c = 0; c < at.columns; ++c) {
        auto k = static_cast<int64_t>(at.at(r, c));
        d.at(k / D::Cols, k % D::Cols) = a.at(r, c);
      }
  });
}
template <typename D, typename T, int Descending> void TCI(D d, T start) {
  record(PIPE_S, [=] { d.fill([&](int64_t, int64_t c) { return static_cast<T>(Descending ? start - c : start + c); }); });
}

}  // namespace pto
