// SPDX-License-Identifier: Apache-2.0

// Package cost estimates what a cluster costs in a month, from a table of AWS's list prices.
//
// [Estimate] is a pure function from existing and desired resources, a region and a [Table]. It counts what
// is billed by time: machines, volumes, load balancers, gateways, endpoints, addresses, keys and zones. What
// is billed by use (traffic, load balancer capacity units, requests, snapshots) is not in it. A resource
// whose price the table lacks is named in the result and never taken for free.
//
// The package does not call AWS. The table is in prices.txt, with the date and the source of each price.
package cost

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"
)

//go:embed prices.txt
var listPrices string

// HoursPerMonth is the number of hours in a month, as AWS's price calculator has it.
const HoursPerMonth = 730

// anyRegion stands for every region of the partition aws in a table.
const anyRegion = "*"

// Table is a list of prices. The zero Table has no prices.
type Table struct {
	// Currency of all prices, such as USD.
	Currency string

	prices  map[priceKey]price
	sources map[string]source
}

// priceKey identifies a price.
type priceKey struct {
	region, item string
}

// price is what one unit of an item costs.
type price struct {
	perMonth float64 // of one unit
	source   string  // its name
}

// source is where prices were read.
type source struct {
	date, text string
}

// ListPrices returns the table of the repository. A test checks that it can be parsed.
func ListPrices() Table {
	t, err := ParseTable(listPrices)
	if err != nil {
		return Table{} // without prices: everything is named as unpriced
	}

	return t
}

// ParseTable parses a table in the format that prices.txt describes. It refuses what it does not know, a
// second price of one item in one region, and a price without a dated source.
func ParseTable(text string) (Table, error) {
	t := Table{prices: map[priceKey]price{}, sources: map[string]source{}}
	number := 0

	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		if err := t.addLine(line); err != nil {
			return Table{}, fmt.Errorf("read line %d of the price table: %w", number, err)
		}
	}

	return t, nil
}

func (t *Table) addLine(line string) error {
	fields := strings.Fields(line)
	switch {
	case fields[0] == "currency" && len(fields) == 2:
		t.Currency = fields[1]
		return nil
	case fields[0] == "source" && len(fields) > 3:
		return t.addSource(fields[1], fields[2], strings.Join(fields[3:], " "))
	case len(fields) == 5:
		return t.addPrice(fields)
	}

	return fmt.Errorf("%q is not a currency, a source or a price", line)
}

func (t *Table) addSource(name, date, text string) error {
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return fmt.Errorf("source %s: %q is not a date such as 2026-01-31", name, date)
	}

	t.sources[name] = source{date: date, text: text}

	return nil
}

// addPrice adds a row: region, item, price, unit and source.
func (t *Table) addPrice(row []string) error {
	key := priceKey{region: row[0], item: row[1]}
	amount, err := strconv.ParseFloat(row[2], 64)
	if err != nil || amount <= 0 {
		return fmt.Errorf("%s: %q is not a price", key.item, row[2])
	}

	switch row[3] {
	case "hour":
		amount *= HoursPerMonth
	case "month", "GiB-month", "IOPS-month", "MiB/s-month":
	default:
		return fmt.Errorf("%s: unit %q is not known", key.item, row[3])
	}

	if _, ok := t.sources[row[4]]; !ok {
		return fmt.Errorf("%s: there is no source %q above it", key.item, row[4])
	}

	if _, ok := t.prices[key]; ok {
		return fmt.Errorf("%s has two prices in %s", key.item, key.region)
	}

	t.prices[key] = price{perMonth: amount, source: row[4]}

	return nil
}

// lookup returns the price of an item in a region.
func (t *Table) lookup(region, item string) (price, bool) {
	if p, ok := t.prices[priceKey{region, item}]; ok {
		return p, true
	}

	if strings.HasPrefix(region, "cn-") || strings.HasPrefix(region, "us-gov-") {
		return price{}, false // other partitions, with prices of their own
	}

	p, ok := t.prices[priceKey{anyRegion, item}]

	return p, ok
}
