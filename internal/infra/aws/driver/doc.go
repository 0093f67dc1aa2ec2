// SPDX-License-Identifier: Apache-2.0

// Package driver reads, creates, updates and deletes each resource kind of package awskind: one
// file for each kind, over a narrow interface of the AWS calls that it makes. [Cloud] combines the
// drivers and implements plan.Cloud.
//
// A driver consists of a reader, which lists the resources of one cluster by their tags with a
// number of calls that does not grow with the instance groups, and of the functions in a driver
// value: create, update, remove and waitReady. It does not know what a cluster consists of, nor in
// which order its resources are created.
package driver
