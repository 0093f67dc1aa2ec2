// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// hoursPerMonth is the number with which the monthly prices of 'slipway plan' are computed.
const hoursPerMonth = 730

// costEstimate is what the plan says about the cost of the cluster.
type costEstimate struct {
	// Currency such as USD, and the date of the oldest price.
	Currency string `json:"currency"`
	PricesOf string `json:"pricesOf"`
	// Monthly cost of the cluster, and what an hour costs.
	Monthly float64 `json:"monthly"`
	Hourly  float64 `json:"hourly"`
	// Hours that are billed at most, and their cost.
	Hours      int     `json:"hours"`
	UpperBound float64 `json:"upperBound"`
	// Unpriced are the items without a known price. With any, the upper bound does not hold.
	Unpriced []string `json:"unpriced"`
}

// estimateCost returns the cost of a cluster that exists for the time limit and that of the deletion at most, from the
// plan in JSON. Load balancers and NAT gateways are billed by the hour begun, so all items are counted with whole hours.
func estimateCost(plan string, timeout time.Duration) (*costEstimate, error) {
	var document struct {
		MonthlyCost struct {
			Currency, PricesOf string
			After              float64
			Unpriced           []string
		}
	}
	if err := json.Unmarshal([]byte(plan), &document); err != nil {
		return nil, fmt.Errorf("read the cost in the output of 'slipway plan -o json': %w", err)
	}

	cost := document.MonthlyCost
	hours := int(math.Ceil((timeout + deletionLimit).Hours()))
	hourly := cost.After / hoursPerMonth

	return &costEstimate{
		Currency:   cost.Currency,
		PricesOf:   cost.PricesOf,
		Monthly:    cost.After,
		Hourly:     math.Round(hourly*100) / 100, //nolint:mnd // cents
		Hours:      hours,
		UpperBound: math.Ceil(hourly*float64(hours)*100) / 100, //nolint:mnd // cents
		Unpriced:   cost.Unpriced,
	}, nil
}

// describeCost returns the estimate as one line.
func (c costEstimate) describeCost() string {
	if c.Currency == "" {
		return "cost: no price of this region is known; see docs/operations/cost.md"
	}

	line := fmt.Sprintf("cost: about %.2f %s an hour, at most %.2f %s for %d hours (list prices of %s or later, without traffic and requests)",
		c.Hourly, c.Currency, c.UpperBound, c.Currency, c.Hours, c.PricesOf)
	if len(c.Unpriced) > 0 {
		line += "; no price is known for " + strings.Join(c.Unpriced, ", ")
	}

	return line
}
