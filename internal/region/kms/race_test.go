// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go/aws"
	sdk "github.com/aws/aws-sdk-go/service/kms"

	regionkms "github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// client calls operations of a KMS service in this process, so that a test sees the output shape that the wire layer
// encodes.
type client struct {
	ctx     context.Context
	service wire.Service
}

func newClient(t *testing.T) client {
	t.Helper()
	svc, err := regionkms.New(regionkms.Config{
		Region:  "us-east-1",
		Account: "000000000000",
		State:   state.Dir(t.TempDir()),
		Now:     time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx := wire.WithCaller(context.Background(), wire.Caller{Account: "000000000000", Root: true})

	return client{ctx: ctx, service: svc.Wire()}
}

// call runs one operation with the given members, which are written as JSON.
func (c client) call(op, members string) (any, error) {
	return wire.CallOperation(c.ctx, c.service, op, func(in any) error { return json.Unmarshal([]byte(members), in) })
}

func (c client) mustCall(t *testing.T, op, members string) any {
	t.Helper()
	out, err := c.call(op, members)
	if err != nil {
		t.Fatalf("%s %s: %v", op, members, err)
	}

	return out
}

func (c client) createKey(t *testing.T) (keyID string) {
	t.Helper()
	body, err := wire.EncodeJSON(c.mustCall(t, "CreateKey", `{"Description":"before"}`))
	if err != nil {
		t.Fatal(err)
	}

	var out struct{ KeyMetadata struct{ KeyId string } }
	if err := json.Unmarshal(body, &out); err != nil || out.KeyMetadata.KeyId == "" {
		t.Fatalf("CreateKey returned %s: %v", body, err)
	}

	return out.KeyMetadata.KeyId
}

// The wire layer encodes an output after the handler has released the lock, so an output must not share memory with
// the key: a later change would show in it, and would be a data race with the encoder.
func TestOutputsDoNotShareMemoryWithKeys(t *testing.T) {
	t.Parallel()
	const id = `"KeyId":"` // completed by each case
	const otherPolicy = `{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",` +
		`\"Principal\":\"*\",\"Action\":\"kms:*\",\"Resource\":\"*\"}]}`

	for _, tc := range []struct{ op, members, change, changeMembers string }{
		{"DescribeKey", "", "UpdateKeyDescription", `,"Description":"after"`},
		{"DescribeKey", "", "DisableKey", ""},
		{"ScheduleKeyDeletion", "", "CancelKeyDeletion", ""},
		{"GetKeyRotationStatus", "", "EnableKeyRotation", ""},
		{"GetKeyPolicy", "", "PutKeyPolicy", `,"Policy":"` + otherPolicy + `"`},
		{"ListResourceTags", "", "TagResource", `,"Tags":[{"TagKey":"a","TagValue":"2"}]`},
	} {
		t.Run(tc.op+" then "+tc.change, func(t *testing.T) {
			t.Parallel()
			c := newClient(t)
			key := id + c.createKey(t) + `"`
			c.mustCall(t, "TagResource", "{"+key+`,"Tags":[{"TagKey":"a","TagValue":"1"}]}`)

			out := c.mustCall(t, tc.op, "{"+key+tc.members+"}")
			before, err := wire.EncodeJSON(out)
			if err != nil {
				t.Fatal(err)
			}

			c.mustCall(t, tc.change, "{"+key+tc.changeMembers+"}")
			after, err := wire.EncodeJSON(out)
			if err != nil {
				t.Fatal(err)
			}

			if string(before) != string(after) {
				t.Errorf("%s changed an output of %s:\n%s\n%s", tc.change, tc.op, before, after)
			}
		})
	}
}

func TestListAliasesDoesNotShareMemoryWithAliases(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	first := c.createKey(t)
	c.mustCall(t, "CreateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+first+`"}`)
	out, ok := c.mustCall(t, "ListAliases", `{}`).(*sdk.ListAliasesOutput)
	if !ok {
		t.Fatal("ListAliases returned another shape")
	}

	c.mustCall(t, "UpdateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+c.createKey(t)+`"}`)
	if got := aws.StringValue(out.Aliases[0].TargetKeyId); got != first {
		t.Errorf("UpdateAlias changed an earlier output of ListAliases: %s", got)
	}
}

// TestConcurrentRequests finds data races under go test -race.
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	id := c.createKey(t)
	key := `{"KeyId":"` + id + `"}`
	c.mustCall(t, "CreateAlias", `{"AliasName":"alias/x","TargetKeyId":"`+id+`"}`)
	var wg sync.WaitGroup

	for _, request := range []struct{ op, members string }{
		{"DescribeKey", key},
		{"ScheduleKeyDeletion", key},
		{"CancelKeyDeletion", key},
		{"EnableKey", key},
		{"DisableKey", key},
		{"EnableKeyRotation", key},
		{"GetKeyRotationStatus", key},
		{"UpdateKeyDescription", `{"KeyId":"` + id + `","Description":"x"}`},
		{"TagResource", `{"KeyId":"` + id + `","Tags":[{"TagKey":"a","TagValue":"1"}]}`},
		{"ListResourceTags", key},
		{"ListAliases", `{}`},
		{"UpdateAlias", `{"AliasName":"alias/x","TargetKeyId":"` + id + `"}`},
		{"Encrypt", `{"KeyId":"` + id + `","Plaintext":"eA=="}`},
		{"GenerateDataKey", `{"KeyId":"` + id + `","KeySpec":"AES_256"}`},
	} {
		wg.Go(func() {
			for range 20 {
				out, err := c.call(request.op, request.members)
				if refused := new(wire.Error); err != nil && !errors.As(err, &refused) {
					t.Errorf("%s: %v", request.op, err)
				}

				if err != nil {
					continue // such as DisabledException: the state of the key changes all the time
				}

				if _, err := wire.EncodeJSON(out); err != nil {
					t.Errorf("encode the output of %s: %v", request.op, err)
				}
			}
		})
	}

	wg.Wait()
}
