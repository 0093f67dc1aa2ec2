// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// costRows is the number of rows that --cost prints; the others are added up.
const costRows = 15

// addCostFlag adds --cost to a command that shows a plan.
func addCostFlag(cmd *cobra.Command, into *bool) {
	cmd.Flags().BoolVar(
		into,
		"cost",
		false,
		"list what the cluster costs in a month, and what the plan changes in it",
	)
}

// costPrinter prints what a cluster costs.
type costPrinter struct {
	*app
}

// print prints the monthly cost of a plan: a line, and with --cost what it consists of.
func (p costPrinter) printLine(review cluster.Review) {
	c := review.Cost
	if p.costDetails {
		p.printDetails(c)
	}

	if !c.IsKnown() || review.Plan.IsEmpty() && !p.costDetails {
		return
	}

	line := "Cost: about " + formatMoney(c.Currency, c.After) + " a month"
	if c.Before != c.After {
		line += " (" + formatChange(c.Currency, c.After-c.Before) + ")"
	}

	if c.UpperBound {
		line += " at most"
	}

	if len(c.Unpriced) > 0 {
		line += ", plus " + countItems(len(c.Unpriced)) + " without a known price"
	}

	line += ", list prices of " + c.PricesOf + " or later"
	if !p.costDetails {
		line += "; --cost for details"
	}

	fmt.Fprintln(p.Stdout, line)
}

// printDetails prints a table of what is paid for, and what is not in it.
func (p costPrinter) printDetails(c plan.MonthlyCost) {
	if c.Currency == "" {
		p.printMessage("the monthly cost of a change by CloudFormation is not computed: the stack's parameters " +
			"decide the types and sizes of its machines")
		return
	}

	fmt.Fprintln(p.Stdout)
	p.printTable([]string{"RESOURCE", "ITEM", "COUNT", "A MONTH", "CHANGE"}, rowsOfCost(c))
	for _, name := range c.Unpriced {
		fmt.Fprintf(p.Stdout, "no price is known for: %s\n", name)
	}

	fmt.Fprintln(p.Stdout, "Not included: traffic, load balancer capacity units, requests, snapshots, logs, taxes and "+
		"discounts,\nexisting resources that the manifest names, and what programs in the cluster create.")
	if c.UpperBound {
		fmt.Fprintln(p.Stdout, "Spot instances are counted at the price on demand, their upper bound.")
	}

	fmt.Fprintln(p.Stdout)
}

// rowsOfCost returns the rows of the table, the last of which adds up the small items.
func rowsOfCost(c plan.MonthlyCost) [][]string {
	rows := make([][]string, 0, costRows+1)
	shown := c.Items[:min(len(c.Items), costRows)]
	for _, item := range shown {
		amount := formatMoney(c.Currency, item.After)
		if item.UpperBound {
			amount = "≤ " + amount
		}

		rows = append(rows, []string{
			string(item.Addr),
			item.What,
			formatCount(item),
			amount,
			formatChange(c.Currency, item.After-item.Before),
		})
	}

	rest := c.Items[len(shown):]
	if len(rest) == 0 {
		return rows
	}

	var sum plan.CostItem
	for _, item := range rest {
		sum.Before += item.Before
		sum.After += item.After
	}

	return append(rows, []string{
		countItems(len(rest)) + " more (-o json has all)",
		"",
		"",
		formatMoney(c.Currency, sum.After),
		formatChange(c.Currency, sum.After-sum.Before),
	})
}

func formatCount(item plan.CostItem) string {
	if item.CountBefore == item.CountAfter || item.CountBefore == 0 {
		return strconv.Itoa(item.CountAfter)
	}

	return fmt.Sprintf("%d → %d", item.CountBefore, item.CountAfter)
}

func countItems(n int) string {
	if n == 1 {
		return "1 item"
	}

	return fmt.Sprintf("%d items", n)
}

// formatMoney renders an amount as $1234.50, or with the code of another currency.
func formatMoney(currency string, amount float64) string {
	sign := currency + " "
	if currency == "USD" {
		sign = "$"
	}

	return fmt.Sprintf("%s%.2f", sign, amount)
}

// formatChange renders a difference with its sign; empty for less than a cent.
func formatChange(currency string, change float64) string {
	switch {
	case math.Abs(change) < 0.005:
		return ""
	case change < 0:
		return "-" + formatMoney(currency, -change)
	}

	return "+" + formatMoney(currency, change)
}
