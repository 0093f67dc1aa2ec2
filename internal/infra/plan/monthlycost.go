// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// MonthlyCost is what the resources of a plan cost at list prices, before and after it. The amounts have no
// taxes and no discounts, and leave out everything that is billed by use.
type MonthlyCost struct {
	// Currency of all amounts, such as USD.
	Currency string `json:"currency"`
	// PricesOf is the date, as in 2026-01-31, of the oldest price that was used; empty: none was.
	PricesOf string `json:"pricesOf"`
	// Before is the cost of the existing resources for a month.
	Before float64 `json:"before"`
	// After is the cost for a month once the plan is applied and all machines are replaced.
	After float64 `json:"after"`
	// UpperBound is true if spot instances or a choice of instance types may make it cheaper.
	UpperBound bool `json:"upperBound"`
	// Items lists what is paid for, the most expensive first.
	Items []CostItem `json:"items"`
	// Unpriced lists, sorted, what has a price that the price table does not have. The amounts lack it.
	Unpriced []string `json:"unpriced"`
}

// CostItem is one thing that is paid for.
type CostItem struct {
	// Addr is the address of the resource that it belongs to.
	Addr graph.Addr `json:"address"`
	// What is paid for, such as "t3.large".
	What string `json:"what"`
	// CountBefore and CountAfter are how many there are.
	CountBefore int `json:"countBefore"`
	CountAfter  int `json:"countAfter"`
	// Before and After are the costs for a month.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// UpperBound is true if it may be cheaper.
	UpperBound bool `json:"upperBound"`
}

// IsKnown reports whether at least one price was known.
func (c MonthlyCost) IsKnown() bool { return len(c.Items) > 0 }

// ExistingResources returns a copy of the existing resources that p was computed from, each with its address.
func (p Plan) ExistingResources() []ActualResource { return slices.Clone(p.actual) }
