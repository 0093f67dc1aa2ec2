// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

func databaseFaults() []fault {
	return []fault{
		{
			name:    "etcd's database is full",
			happens: "The database has reached its quota of 8 GiB. Every write is refused, in the whole cluster.",
			todo: "The operator deletes objects: etcd permits that. The agents compact, defragment one member after the other, and disarm " +
				"the alarm, within minutes.",
			change: func(f *health.Facts) {
				for n := range 3 {
					measured(f, n, func(r *report.Report) { r.Etcd.DBSize, r.Etcd.Alarms = 8<<30, []string{"NOSPACE"} })
				}
			},
			want: []string{
				"critical etcd database: alarm NOSPACE: the database has 8.0 GiB of its quota of 8.0 GiB; etcd refuses all writes",
			},
		},
		{
			name:    "etcd's database is almost full",
			happens: "The database has more than 80% of its quota.",
			todo:    "The operator finds what fills it before writes stop. Often it is events or objects of one custom resource.",
			change: func(f *health.Facts) {
				for n := range 3 {
					measured(f, n, func(r *report.Report) { r.Etcd.DBSize = 7 << 30 })
				}
			},
			want: []string{
				"warning etcd etcd-a: the database has 7.0 GiB of its quota of 8.0 GiB; etcd refuses all writes when it is full",
				"warning etcd etcd-b: the database has 7.0 GiB of its quota of 8.0 GiB; etcd refuses all writes when it is full",
				"warning etcd etcd-c: the database has 7.0 GiB of its quota of 8.0 GiB; etcd refuses all writes when it is full",
			},
		},
		{
			name:    "The data of etcd's members differs",
			happens: "A disk or memory has changed data of a member. etcd notices, and refuses reads and writes.",
			todo: "Nobody, if a majority has the same data: the agent of the member with other data sets it aside, and the member " +
				"joins again as a learner. Otherwise the operator restores a backup.",
			change: func(f *health.Facts) {
				for n := range 3 {
					measured(f, n, func(r *report.Report) { r.Etcd.Alarms = []string{"CORRUPT"} })
				}
			},
			want: []string{
				"critical etcd database: alarm CORRUPT: the data of the members differs; etcd refuses reads and writes",
			},
		},
		{
			name:    "The disk of an etcd member is slow",
			happens: "The member writes its log slowly, because the volume is throttled or too small, or the machine is busy.",
			todo:    "The operator gives the volume more IOPS or throughput, or the group a larger machine type.",
			change: func(f *health.Facts) {
				measured(f, 1, func(r *report.Report) { r.Etcd.SyncMillis = 512 })
			},
			want: []string{
				"warning etcd etcd-b: its disk is slow: more than 1% of the writes of the log take longer than 256 ms",
			},
		},
		{
			name:    "A member has lost its data and joins again",
			happens: "A member with an empty volume is a learner until it has all data. It does not vote yet.",
			todo:    "Nobody: the agent promotes it. Do not replace another machine meanwhile.",
			change: func(f *health.Facts) {
				measured(f, 1, func(r *report.Report) { r.Etcd.Learner = true })
			},
			want: []string{
				"failed etcd etcd-b: is a learner still catching up; it does not vote yet",
				"warning etcd quorum: no other member may fail: 2 of 3 work",
			},
		},
	}
}
