// SPDX-License-Identifier: Apache-2.0

package driver

import "testing"

func TestServiceGrantees(t *testing.T) {
	t.Parallel()
	for principal, want := range map[string]bool{
		"arn:aws:sts::123456789012:assumed-role/aws:ec2-infrastructure/i-0123456789abcdef0":                      true,
		"arn:aws-cn:sts::123456789012:assumed-role/aws:ec2-infrastructure/i-0123456789abcdef0":                   true,
		"arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling": true,
		"arn:aws:sts::111122223333:assumed-role/aws:ec2-infrastructure/i-0123456789abcdef0":                      false,
		"arn:aws:iam::111122223333:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling": false,
		"arn:aws:iam::123456789012:role/aws:ec2-infrastructure/any":                                              false,
		"arn:aws:iam::123456789012:role/x:assumed-role/aws:ec2-infrastructure/any":                               false,
		"arn:aws:iam::123456789012:role/x:role/aws-service-role/any":                                             false,
		"arn:aws:iam::123456789012:role/sts::123456789012:assumed-role/aws:ec2-infrastructure/any":               false,
		"arn:aws:iam::123456789012:user/sts::123456789012:assumed-role/aws:ec2-infrastructure/any":               false,
		"arn:aws:sts::123456789012:assumed-role/ec2-infrastructure/i-0123456789abcdef0":                          false,
		"arn:aws:iam::123456789012:root": false,
		"":                               false,
	} {
		if got := isServiceGrantee(principal, "123456789012"); got != want {
			t.Errorf("%s: %t", principal, got)
		}
	}
	if isServiceGrantee("arn:aws:sts:::assumed-role/aws:ec2-infrastructure/i-1", "") {
		t.Error("without an account")
	}
}
