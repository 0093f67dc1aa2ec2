// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// checkMarketOptions refuses the market options that EC2 refuses for spot instances.
func checkMarketOptions(l *launchRequest) error {
	m := l.in.InstanceMarketOptions
	if m == nil {
		return nil
	}

	if str(m.MarketType) != sdk.MarketTypeSpot {
		return invalidParameter("MarketType", str(m.MarketType), "Only spot is supported")
	}

	o := m.SpotOptions
	if o == nil {
		return nil
	}

	if price := str(o.MaxPrice); price != "" {
		if p, err := strconv.ParseFloat(price, 64); err != nil || p <= 0 {
			return newErrorf(codeInvalidParameterValue, "Invalid value '%s' for price", price)
		}
	}

	if b := str(o.InstanceInterruptionBehavior); b != "" && b != "terminate" &&
		str(o.SpotInstanceType) != "persistent" {
		return newErrorf(
			codeInvalidParameterCombination,
			"A one-time Spot Instance request can only terminate its instance when it is interrupted",
		)
	}

	return nil
}
