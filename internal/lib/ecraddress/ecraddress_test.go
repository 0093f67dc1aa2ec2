// SPDX-License-Identifier: Apache-2.0

package ecraddress_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
)

// TestParse: an address says which account and region have the registry, in every partition.
func TestParse(t *testing.T) {
	t.Parallel()

	for address, want := range map[string]struct{ account, region, path, arns string }{
		"123456789012.dkr.ecr.us-east-1.amazonaws.com": {
			"123456789012", "us-east-1", "", "arn:aws:ecr:us-east-1:123456789012:repository/*",
		},
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com/mirror/": {
			"123456789012", "eu-central-1", "mirror", "arn:aws:ecr:eu-central-1:123456789012:repository/mirror/*",
		},
		"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/a/b": {
			"123456789012", "cn-north-1", "a/b", "arn:aws-cn:ecr:cn-north-1:123456789012:repository/a/b/*",
		},
		"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com": {
			"123456789012", "us-gov-west-1", "", "arn:aws-us-gov:ecr:us-gov-west-1:123456789012:repository/*",
		},
		"123456789012.dkr-ecr.us-east-1.on.aws/x": {
			"123456789012", "us-east-1", "x", "arn:aws:ecr:us-east-1:123456789012:repository/x/*",
		},
	} {
		got, ok := ecraddress.Parse(address)
		host, _, _ := strings.Cut(address, "/")
		expected := ecraddress.Registry{Host: host, Account: want.account, Region: want.region, Path: want.path}
		if diff := cmp.Diff(expected, got); !ok || diff != "" {
			t.Errorf("%s: %v\n%s", address, ok, diff)
		}

		if got.RepositoryARNs() != want.arns {
			t.Errorf("%s: %s, want %s", address, got.RepositoryARNs(), want.arns)
		}
	}
}

// TestParseOthers: registries of others are none of Amazon ECR, also if their names look alike.
func TestParseOthers(t *testing.T) {
	t.Parallel()

	for _, address := range []string{
		"", "registry.k8s.io/pause", "198.18.0.1:5000", "public.ecr.aws/x",
		"12345678901.dkr.ecr.us-east-1.amazonaws.com", "x123456789012.dkr.ecr.us-east-1.amazonaws.com",
		"123456789012.dkr.ecr.us-east-1.amazonaws.com:5000/x", "example.com/123456789012.dkr.ecr.us-east-1.amazonaws.com",
		"123456789012.dkr.ecr.us-east-1.example.com/x", "123456789012.dkr.ecr.us-east-1.amazonaws.com.example.com/x",
	} {
		if r, ok := ecraddress.Parse(address); ok {
			t.Errorf("%s is taken for %+v", address, r)
		}
	}
}

// FuzzParse: the host of an address is a part of it, and its account has 12 digits.
func FuzzParse(f *testing.F) {
	f.Add("123456789012.dkr.ecr.us-east-1.amazonaws.com/mirror")
	f.Fuzz(func(t *testing.T, address string) {
		r, ok := ecraddress.Parse(address)
		if ok && (!strings.HasPrefix(address, r.Host) || len(r.Account) != 12 || r.Region == "") {
			t.Errorf("%q: %+v", address, r)
		}
	})
}
