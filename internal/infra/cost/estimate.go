// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Resources are what an estimate compares.
type Resources struct {
	// Existing are the resources in AWS.
	Existing []plan.ActualResource
	// Desired are the resources after the change.
	Desired []plan.DesiredResource
	// Templates are what the launch templates of instance groups contain, by the name of the group. They are used for
	// templates whose content was not read from AWS.
	Templates map[string]awskind.LaunchTemplateData
	// Kept are existing resources that stay although they are not desired, such as the volumes that a
	// deletion keeps.
	Kept []plan.ActualResource
}

// Estimate returns the monthly cost of resources in a region before and after a change. A group of machines
// keeps the size to which an autoscaler has set it, as far as the group's limits allow.
func Estimate(t Table, region string, r Resources) plan.MonthlyCost {
	e := estimator{table: t, region: region, items: map[itemKey]*plan.CostItem{}}
	before := newInventory(append(slices.Clone(r.Existing), r.Kept...), nil)
	before.templates = r.Templates
	before.addCharges(func(_ graph.Addr, g awskind.AutoScalingGroup) int {
		return max(g.MinSize, g.DesiredCapacity)
	})

	after := newInventory(r.Kept, r.Desired)
	after.addrByID = before.addrByID
	after.addCharges(func(addr graph.Addr, g awskind.AutoScalingGroup) int {
		have, exists := before.byAddr[addr].(awskind.AutoScalingGroup)
		if !exists {
			return max(g.MinSize, g.DesiredCapacity)
		}

		return min(max(have.DesiredCapacity, g.MinSize), max(g.MaxSize, g.MinSize))
	})

	for _, c := range before.charges {
		e.addCharge(c, false)
	}

	for _, c := range after.charges {
		e.addCharge(c, true)
	}

	return e.result(append(before.unpriced, after.unpriced...))
}

// newInventory returns the inventory of existing resources, and of desired ones, which win.
func newInventory(existing []plan.ActualResource, desired []plan.DesiredResource) *inventory {
	v := &inventory{byAddr: map[graph.Addr]graph.Resource{}, addrByID: map[string]graph.Addr{}}
	for _, r := range existing {
		v.addrByID[r.ID] = r.Addr
		v.byAddr[r.Addr] = r.Resource
		v.resources = append(v.resources, resource{r.Addr, r.Resource})
	}

	for _, r := range desired {
		v.byAddr[r.Addr] = r.Resource
		v.resources = append(v.resources, resource{r.Addr, r.Resource})
	}

	return v
}

// estimator adds up charges.
type estimator struct {
	table    Table
	region   string
	items    map[itemKey]*plan.CostItem
	unpriced []string
	oldest   string // date of the oldest price that was used
}

// itemKey identifies an item of the result.
type itemKey struct {
	addr graph.Addr
	what string
}

// addCharge adds a charge to the cost before or after the change.
func (e *estimator) addCharge(c charge, after bool) {
	perMonth, ok := e.price(c)
	if !ok {
		e.unpriced = append(e.unpriced, fmt.Sprintf("%s in %s (%s)", c.what, e.region, c.addr))
		return
	}

	key := itemKey{c.addr, c.what}
	item := e.items[key]
	if item == nil {
		item = &plan.CostItem{Addr: c.addr, What: c.what}
		e.items[key] = item
	}

	item.UpperBound = item.UpperBound || c.upperBound
	total := roundCents(perMonth * c.units * float64(c.count))
	if after {
		item.CountAfter += c.count
		item.After += total
	} else {
		item.CountBefore += c.count
		item.Before += total
	}
}

// price returns the price for a month of one unit: of the most expensive item, if the charge has several.
func (e *estimator) price(c charge) (float64, bool) {
	most := 0.0
	for item := range strings.FieldsSeq(c.item) {
		p, ok := e.table.lookup(e.region, item)
		if !ok {
			return 0, false
		}

		most = max(most, p.perMonth)
		date := e.table.sources[p.source].date
		if e.oldest == "" || date < e.oldest {
			e.oldest = date
		}
	}

	if c.maxPerHour > 0 {
		most = min(most, c.maxPerHour*HoursPerMonth)
	}

	return most, true
}

// result returns the sum. kinds lists further resources without a price.
func (e *estimator) result(kinds []string) plan.MonthlyCost {
	out := plan.MonthlyCost{
		Currency: e.table.Currency,
		PricesOf: e.oldest,
		Items:    []plan.CostItem{},
		Unpriced: append(e.unpriced, kinds...),
	}

	for _, item := range e.items {
		item.Before = roundCents(item.Before)
		item.After = roundCents(item.After)
		out.Items = append(out.Items, *item)
	}

	slices.SortFunc(out.Items, func(a, b plan.CostItem) int {
		return cmp.Or(
			cmp.Compare(max(b.Before, b.After), max(a.Before, a.After)),
			cmp.Compare(a.Addr, b.Addr),
			cmp.Compare(a.What, b.What),
		)
	})

	for _, item := range out.Items {
		out.Before += item.Before
		out.After += item.After
		out.UpperBound = out.UpperBound || item.UpperBound && item.After > 0
	}

	out.Before = roundCents(out.Before)
	out.After = roundCents(out.After)
	unique := map[string]bool{}
	for _, name := range out.Unpriced {
		unique[name] = true
	}

	out.Unpriced = slices.AppendSeq([]string{}, maps.Keys(unique))
	slices.Sort(out.Unpriced)

	return out
}

func roundCents(amount float64) float64 { return math.Round(amount*100) / 100 }
