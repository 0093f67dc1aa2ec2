// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// unavailableLimit is how many machines of a group may be missing: a number, or a percentage of its size.
type unavailableLimit struct {
	number  int
	percent int
}

// parseMaxUnavailable parses a number of machines or a percentage. Empty means 1.
func parseMaxUnavailable(text string) (unavailableLimit, error) {
	if text == "" {
		return unavailableLimit{number: 1}, nil
	}

	digits, isPercent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || isPercent && n > 100 {
		return unavailableLimit{}, diag.WithHint(
			fmt.Errorf("invalid --max-unavailable %q", text),
			"use a number from 1, or a percentage from 1% to 100%",
		)
	}

	if isPercent {
		return unavailableLimit{percent: n}, nil
	}

	return unavailableLimit{number: n}, nil
}

// machines returns the limit for a group of this size, at least 1.
func (l unavailableLimit) machines(size int) int {
	return max(1, l.number, size*l.percent/100)
}
