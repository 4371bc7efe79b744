// From blocks of integer sums to results, sixteen columns at once: included by quantized.cpp once for AVX2 and once for AVX-512, in a namespace and a
// region with its target. `V` has the sixteen floats.

PTERON_CPU_INLINE Floats between(Floats y, Floats low, Floats high) { return V::min(high, V::max(low, y)); }

/// The constants of a block in registers: stores of bytes may change anything else, as far as the compiler knows.
template <Added kAdded, bool kMiddle, bool kBytes>
struct Finisher {
  explicit Finisher(const QuantizedEnd& e)
      : low(V::set(e.low)), high(V::set(e.high)), inverse(V::set(e.inverse)), zero(V::set(e.zero)), least(V::set(e.least)), most(V::set(e.most)),
        added_zero(V::set(e.residual_zero)), added_scale(V::set(e.residual_scale)), middle_low(V::set(e.middle.low)), middle_high(V::set(e.middle.high)),
        middle_inverse(V::set(e.middle.inverse)), middle_zero(V::set(e.middle.zero)), middle_least(V::set(e.middle.least)), middle_most(V::set(e.middle.most)),
        back(V::set(e.middle.back_zero)), middle_scale(V::set(e.middle.scale)) {}

  PTERON_CPU_INLINE Floats added(const std::byte* from) const {
    if constexpr (kAdded == Added::kFloat) return V::load(reinterpret_cast<const float*>(from));
    return V::mul(V::sub(V::template bytes<kAdded == Added::kInt8>(from), added_zero), added_scale);
  }
  /// Results in float of what a sum gives; for bytes, levels.
  PTERON_CPU_INLINE Floats results(Floats y, const std::byte* residual) const {
    if constexpr (kMiddle) {
      const Floats level = V::add(V::round(V::mul(between(y, middle_low, middle_high), middle_inverse)), middle_zero);
      y = V::mul(V::sub(between(level, middle_least, middle_most), back), middle_scale);
    }
    if constexpr (kAdded != Added::kNothing) y = V::add(y, added(residual));
    y = between(y, low, high);
    if constexpr (kBytes) y = between(V::add(V::round(V::mul(y, inverse)), zero), least, most);
    return y;
  }
  Floats low, high, inverse, zero, least, most, added_zero, added_scale, middle_low, middle_high, middle_inverse, middle_zero, middle_least, middle_most, back, middle_scale;
};

/// Whole groups of sixteen columns. Bytes of int8 and uint8 are the same, levels are in range.
template <Added kAdded, bool kMiddle, bool kBytes>
void finish_columns(const QuantizedEnd& end, const SumBlock& b) {
  const Finisher<kAdded, kMiddle, kBytes> f(end);
  constexpr int64_t kAddedBytes = kAdded == Added::kFloat ? 4 : 1;
  for (int64_t j = 0; j < b.columns; j += 16) {
    const Floats factors = V::load(b.factors + j), bias = b.bias != nullptr ? V::load(b.bias + j) : V::set(0);
    const int32_t* sums = b.sums + j;
    const std::byte* residual = kAdded == Added::kNothing ? nullptr : b.residual + j * kAddedBytes;
    std::byte* out = b.out + j * (kBytes ? 1 : 4);
    for (int64_t i = 0; i < b.rows; ++i) {
      const Floats y = f.results(V::add(V::mul(V::sums(sums), factors), bias), residual);
      if constexpr (kBytes) {
        V::store_bytes(y, out);
      } else {
        V::store(y, reinterpret_cast<float*>(out));
      }
      sums += b.sum_row;
      out += b.row * (kBytes ? 1 : 4);
      if constexpr (kAdded != Added::kNothing) residual += b.row * kAddedBytes;
    }
  }
}
template <Added kAdded>
void finish_added(const QuantizedEnd& end, const SumBlock& b) {
  const bool bytes = end.dtype != DType::kFloat32;
  if (end.middle.exists) return bytes ? finish_columns<kAdded, true, true>(end, b) : finish_columns<kAdded, true, false>(end, b);
  return bytes ? finish_columns<kAdded, false, true>(end, b) : finish_columns<kAdded, false, false>(end, b);
}
void finish_whole(const QuantizedEnd& end, const SumBlock& b) {
  if (b.residual == nullptr) return finish_added<Added::kNothing>(end, b);
  if (b.residual_dtype == DType::kFloat32) return finish_added<Added::kFloat>(end, b);
  return b.residual_dtype == DType::kInt8 ? finish_added<Added::kInt8>(end, b) : finish_added<Added::kUInt8>(end, b);
}
