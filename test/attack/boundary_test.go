// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestBoundaryOfAnOlderSlipway: the boundary of an older store allows more than this version needs, and has what an
// administrator added. 'slipway iam boundary' tells, an administrator applies what it prints, and the added statement stays.
func TestBoundaryOfAnOlderSlipway(t *testing.T) {
	l := newLab(t)
	api := iam.NewFromConfig(l.config(caller{}))
	arn := "arn:aws:iam::" + regiontest.AccountID + ":policy/slipway/slipway-machines-" + bucket
	type document struct {
		Version   string
		Statement []map[string]any
	}
	type boundary struct {
		ARN, State      string
		Outdated, Added []string
		Characters      int
		Document        document
	}
	read := func(code int, args ...string) boundary {
		var out boundary
		printed := l.must(caller{}, code, append([]string{"iam", "boundary", "-o", "json"}, args...)...)
		l.check(json.Unmarshal([]byte(printed), &out))

		return out
	}
	apply := func(d document) {
		text, err := json.Marshal(d)
		l.check(err)
		_, err = api.CreatePolicyVersion(t.Context(), &iam.CreatePolicyVersionInput{
			PolicyArn:      &arn,
			PolicyDocument: sdk.String(string(text)),
			SetAsDefault:   true,
		})
		l.check(err)
	}

	if got := read(0); got.State != "current" || got.ARN != arn || len(got.Outdated)+len(got.Added) > 0 {
		t.Fatalf("a new store: %+v", got)
	}

	own := read(0).Document
	older := document{Version: own.Version}
	for _, s := range own.Statement {
		switch s["Sid"] {
		case "Records": // an older slipway had no function
		case "Store":
			objects, _ := s["Resource"].([]any)
			older.Statement = append(older.Statement, map[string]any{
				"Sid": "Store", "Effect": "Allow", "Action": "s3:*",
				"Resource": append(slices.Clone(objects), strings.Replace(objects[0].(string), "/team/", "/other/", 1)),
			})
		default:
			older.Statement = append(older.Statement, s)
		}
	}

	queue := map[string]any{"Sid": "Queue", "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
	older.Statement = append(older.Statement, queue)
	apply(older)

	got := read(2)
	if got.State != "outdated" || !slices.Equal(got.Outdated, []string{"Store", "Records"}) || !slices.Equal(got.Added, []string{"Queue"}) {
		t.Fatalf("an older boundary: %+v", got)
	}

	if table := l.must(caller{}, 2, "iam", "boundary"); !strings.Contains(table, "outdated") || !strings.Contains(table, "Store, Records") {
		t.Errorf("the table says\n%s", table)
	}

	apply(got.Document)
	after := read(0)
	text, err := json.Marshal(after.Document)
	l.check(err)
	if after.State != "current" || !strings.Contains(string(text), "sqs:SendMessage") || !strings.Contains(string(text), "/other/") ||
		strings.Contains(string(text), "s3:*") {
		t.Errorf("after the update: %+v", after)
	}

	if got := read(0, "--account", "123456789012"); got.State != "not read" || len(got.Document.Statement) != len(own.Statement) {
		t.Errorf("of another account: %+v", got)
	}

	l.createCluster()
	l.must(caller{}, 0, "iam", "boundary", "demo")
	if out, errs, code := l.slipway(l.user("reader", nil), "iam", "boundary"); code != 1 || !strings.Contains(errs, "administrator") {
		t.Errorf("without permission: exit %d\n%s%s", code, out, errs)
	}
}
