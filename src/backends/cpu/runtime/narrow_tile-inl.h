// Loops of narrow_kernels.cpp that are compiled for several units: included once for each, in a namespace and a region with its target.

/// kRows rows of kPanels panels from row `row` and panel `panel` of the run on, `lines` of what is wanted next for each chunk; Op says what a vector is
/// and how a quad is multiplied (kSteps parts).
template <typename Op, int kRows, int kPanels>
inline void narrow_rows(const NarrowRun& r, int64_t row, int panel, int64_t lines) {
  using Vec = typename Op::Vec;
  constexpr int kVectors = Op::kVectors * kPanels;
  constexpr int64_t kVectorBytes = sizeof(Vec), kValues = kVectorBytes / 4;
  constexpr int kTriples = (kRows + 2) / 3;
  Vec acc[kRows][kVectors];
  const auto* start = static_cast<const int32_t*>(r.start) + panel * kNarrowColumns;
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PTERON_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[i][v] = Op::load(start + v * kValues);
  }
  // Three rows share a pointer: the addresses are p, p + s, p + 2 * s.
  const int64_t s = r.a_row;
  const std::byte* a[kTriples];
  PTERON_UNROLL
  for (int t = 0; t < kTriples; ++t) a[t] = r.a + (row + 3 * t) * s;
  const std::byte* b = r.b + panel * r.panel_bytes;
  const std::byte* next = r.next;
  for (int64_t left = r.quads; left > 0; left -= kQuadChunk) {
    for (int64_t i = 0; i < lines; ++i, next += kQuadLine) __builtin_prefetch(next, 0, 2);
    for (int64_t quad = left < kQuadChunk ? left : kQuadChunk; quad > 0; --quad) {
      PTERON_UNROLL
      for (int step = 0; step < Op::kSteps; ++step) {
        Vec w[kVectors];
        PTERON_UNROLL
        for (int v = 0; v < kVectors; ++v) w[v] = Op::weights(b + v / Op::kVectors * r.panel_bytes + v % Op::kVectors * kVectorBytes, step);
        PTERON_UNROLL
        for (int i = 0; i < kRows; ++i) {
          const Vec x = Op::broadcast(a[i / 3] + (i % 3) * s + step * 4);
          PTERON_UNROLL
          for (int v = 0; v < kVectors; ++v) acc[i][v] = Op::add(acc[i][v], x, w[v]);
        }
      }
      b += kQuadLine;
      PTERON_UNROLL
      for (int t = 0; t < kTriples; ++t) a[t] += Op::kSteps * 4;
    }
  }
  auto* out = static_cast<int32_t*>(r.out) + row * kNarrowResultRow + panel * kNarrowColumns;
  PTERON_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PTERON_UNROLL
    for (int v = 0; v < kVectors; ++v) Op::store(acc[i][v], out + i * kNarrowResultRow + v * kValues);
  }
}

template <typename Op, int kRows>
inline void narrow_group(const NarrowRun& r, int64_t row, int64_t count, int panel, int64_t lines) {
  if constexpr (kRows > 1) {
    if (count < kRows) return narrow_group<Op, kRows - 1>(r, row, count, panel, lines);
  }
  if constexpr (Op::kMaxPanels == 2) {
    if (r.panels == 2) return narrow_rows<Op, kRows, 2>(r, row, panel, lines);
  }
  narrow_rows<Op, kRows, 1>(r, row, panel, lines);
}

/// Groups of nearly the same height.
template <typename Op>
void narrow_run(const NarrowRun& r) {
  const int64_t groups = (r.rows + Op::kRows - 1) / Op::kRows, height = r.rows / groups, taller = r.rows % groups;
  for (int panel = 0; panel < r.panels; panel += Op::kMaxPanels) {
    for (int64_t row = 0, group = 0; row < r.rows; ++group) {
      const int64_t count = height + (group < taller ? 1 : 0);
      narrow_group<Op, Op::kRows>(r, row, count, panel, group == 0 ? r.next_lines : 0);
      row += count;
    }
  }
}

inline uint32_t rounded_bits(uint32_t bits) {
  const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : rounded;
}

void float_to_bf16(const float* from, uint16_t* to, int64_t count) {
  const auto* bits = reinterpret_cast<const Bits*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<uint16_t>(rounded_bits(bits[i]) >> 16);
}

void float_to_rounded(const float* from, float* to, int64_t count) {
  const auto* bits = reinterpret_cast<const Bits*>(from);
  auto* out = reinterpret_cast<Bits*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = rounded_bits(bits[i]) & 0xffff0000u;
}

void bf16_to_float(const uint16_t* from, float* to, int64_t count) {
  auto* out = reinterpret_cast<Bits*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(from[i]) << 16;
}

template <typename T>
void to_wide(const T* from, int16_t* to, int64_t quads) {
  for (int64_t q = 0; q < quads; ++q, from += 4, to += 4) {
    to[0] = from[0];
    to[1] = from[2];
    to[2] = from[1];
    to[3] = from[3];
  }
}

template <typename Op>
constexpr NarrowKernels kernels_of(bool wide) {
  NarrowKernels k;
  k.rows = Op::kRows * Op::kGroups;
  k.height = Op::kRows;
  k.wide = wide;
  k.run = narrow_run<Op>;
  k.float_to_bf16 = float_to_bf16;
  k.float_to_rounded = float_to_rounded;
  k.bf16_to_float = bf16_to_float;
  k.int8_to_wide = to_wide<int8_t>;
  k.uint8_to_wide = to_wide<uint8_t>;
  return k;
}
