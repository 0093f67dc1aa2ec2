// SPDX-License-Identifier: Apache-2.0

// Package attack tries what an attacker with a small foothold would try: with the read-only policy, the operator's
// policy, the role of a machine, or a token of a pod. Each test was seen to succeed as the attacker before its
// finding was fixed; its comment says so. They run in the records mode of the local region, where IAM, KMS and S3
// decide as in AWS, except that one starts a machine of the region to attack its host. Attacks that need more machines are in
// test/e2e.
package attack_test
