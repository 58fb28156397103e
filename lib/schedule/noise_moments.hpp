// How much of a result's values its encodes have encoded, from which the error of the result
// follows. The algorithms state it, verify() counts it, and the planner's costs carry it. Pure; any
// thread may call.
#pragma once

namespace qccl {

// Sums over the encodes on the way to a result: of the share x of the result's contributions that
// is in the encoded value, of x^2 and of x^3; for several results the mean over them. In units of
// one encode's NMSE the first is the NMSE of a sum of independent values, whose partial sum of the
// share x has the part x of the result's mean square. The second is that of a sum of equal values,
// whose partial sum has the part x^2. The third is needed if the encodes of sums lose more or less
// than those of inputs.
struct NoiseMoments {
    double first = 0, second = 0, third = 0;

    // `times` encodes of the share each. The share may also be a number of contributions, until
    // shares_of() divides.
    static constexpr NoiseMoments of(double share, double times = 1) {
        return {times * share, times * share * share, times * share * share * share};
    }
    constexpr NoiseMoments &operator+=(const NoiseMoments &other) {
        first += other.first;
        second += other.second;
        third += other.third;
        return *this;
    }
    friend constexpr NoiseMoments operator+(NoiseMoments a, const NoiseMoments &b) {
        return a += b;
    }
    friend constexpr NoiseMoments operator*(const NoiseMoments &a, double factor) {
        return {a.first * factor, a.second * factor, a.third * factor};
    }
    // Returns the moments of shares, from those of numbers of contributions.
    constexpr NoiseMoments shares_of(double contributions) const {
        const double part = 1 / contributions;
        return {first * part, second * part * part, third * part * part * part};
    }
};

} // namespace qccl
