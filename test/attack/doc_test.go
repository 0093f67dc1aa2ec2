// SPDX-License-Identifier: Apache-2.0

// Package attack tries what an attacker with a small foothold would try: with the read-only policy, the operator's
// policy, the role of a machine, or a token of a pod. The comment of each test says on which code it was seen to succeed as
// the attacker ("Seen to succeed"), that what it attacks never existed without the defence ("Never open"), or that it is no attack,
// but what a defence must not break ("No attack"); package repocheck checks that. They run in the records mode of the local region, where IAM, KMS and S3
// decide as in AWS, except that one starts a machine of the region to attack its host. Attacks that need more machines are in
// test/e2e.
package attack_test
