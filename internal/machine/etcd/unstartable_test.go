// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

func TestDecideUnstartable(t *testing.T) {
	type input struct {
		facts  etcd.MaintenanceFacts
		exits  etcd.Exits
		others etcd.Comparison
	}
	for name, c := range map[string]struct {
		change func(*input)
		want   etcd.MaintenanceType
		reason string
	}{
		"it rejects its data":     {func(*input) {}, etcd.MaintainStepAside, "etcd ended 6 times since it answered last: it rejects its data"},
		"it ended a few times":    {func(i *input) { i.exits.Count = 5 }, etcd.MaintainNothing, "ended 5 times"},
		"it just began":           {func(i *input) { i.exits.Since = i.facts.Now.Add(-59 * time.Second) }, etcd.MaintainNothing, ""},
		"it answers":              {func(i *input) { i.facts.Members[0].Healthy = true }, etcd.MaintainNothing, ""},
		"a learner":               {func(i *input) { i.facts.Members[0].Learner = true }, etcd.MaintainStepAside, "it rejects its data"},
		"a learner that began":    {func(i *input) { i.facts.Members[0].Learner, i.exits.Count = true, 5 }, etcd.MaintainNothing, "ended 5 times"},
		"a learner, one voter":    {func(i *input) { i.facts.Members[0].Learner, i.facts.Members = true, i.facts.Members[:2] }, etcd.MaintainNothing, "not all healthy"},
		"a learner, copied again": {func(i *input) { i.facts.Members[0].Learner, i.facts.CopiedAgain = true, true }, etcd.MaintainBlocked, "/learner"},
		"a voter, copied again":   {func(i *input) { i.facts.CopiedAgain = true }, etcd.MaintainStepAside, ""},
		"no member any more":      {func(i *input) { i.facts.Members = i.facts.Members[1:] }, etcd.MaintainNothing, ""},
		"another one fails too":   {func(i *input) { i.facts.Members[1].Healthy = false }, etcd.MaintainNothing, "not all healthy"},
		"the only member":         {func(i *input) { i.facts.Members = i.facts.Members[:1] }, etcd.MaintainNothing, "not all healthy"},
		"one other member":        {func(i *input) { i.facts.Members = i.facts.Members[:2] }, etcd.MaintainNothing, "not all healthy"},
		"another one is a copy":   {func(i *input) { i.facts.Members[1].Learner = true }, etcd.MaintainNothing, "not all healthy"},
		"the others differ":       {func(i *input) { i.others = etcd.Comparison{Problem: "they differ"} }, etcd.MaintainNothing, "they differ"},
		"no room":                 {func(i *input) { i.facts.FreeBytes = 100 * mebibyte }, etcd.MaintainBlocked, "MiB of free space are needed"},
		"room in place of a copy": {func(i *input) { i.facts.FreeBytes, i.facts.AsideBytes = 0, 1<<30 }, etcd.MaintainStepAside, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in := input{
				facts:  threeMembers(func(f *etcd.MaintenanceFacts) { f.Members[0].Healthy = false }),
				others: etcd.Comparison{Equal: true},
			}
			in.exits = etcd.Exits{Count: 6, Since: in.facts.Now.Add(-time.Minute)}
			c.change(&in)
			got := etcd.DecideUnstartable(in.facts, in.exits, in.others)
			if got.Type != c.want || !strings.Contains(got.Reason, c.reason) || got.Reason == "" {
				t.Errorf("%+v, want %s: %s", got, c.want, c.reason)
			}
		})
	}
}
